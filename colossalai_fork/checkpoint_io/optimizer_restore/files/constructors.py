"""What a pickle of plain data may name: constructors of the standard library, torch and numpy, each with its own checks.

None of them is called with what a pickle says before that has been found to be of the expected types and sizes.
"""

import datetime
import decimal
import fractions
import pathlib
import re
import uuid
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any, Callable, Dict, Tuple

import torch

from .numpy_values import NUMPY
from .plain_pickle import BUILDERS, LEAVES, Global, PickleError, PlainUnpickler

__all__ = ["find_plain"]

_LONGEST_RANGE = 1 << 20
_LARGEST_EXPONENT = 10_000

_NAMES: Dict[Tuple[str, str], Any] = {}


def find_plain(module: str, name: str) -> Any:
    """
    Look up what a global name in a pickle stands for.

    Args:
        module (str): The module that a pickle names.
        name (str): The name in it.

    Returns:
        Any: The value or constructor that it stands for, or None if it is none of plain data.
    """
    found = _NAMES.get((module, name))
    if found is None and module in ("torch", "torch._utils"):
        value = getattr(torch, name.rpartition(".")[2], None)
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return value
    return found


def _constructor(module: str, name: str, factory: Any = None) -> Callable:
    def register(call: Callable) -> Callable:
        _NAMES[module, name] = Global("{}.{}".format(module, name), call, factory)
        return call

    return register


def _need(condition: bool) -> None:
    if not condition:
        raise PickleError("it holds a value whose parts are of the wrong kind")


def _are(values: Tuple, *kinds: Any) -> bool:
    return len(values) == len(kinds) and all(type(value) in _as_tuple(kind) for value, kind in zip(values, kinds))


def _as_tuple(kind: Any) -> Tuple:
    return kind if isinstance(kind, tuple) else (kind,)


def _fresh(it: PlainUnpickler, value: Any) -> Any:
    it.fragile.append(value)
    return value


# ======================================
# containers
# ======================================


@_constructor("collections", "OrderedDict", OrderedDict)
def _ordered_dict(it: PlainUnpickler, arguments: Tuple) -> Any:
    if not arguments:
        return OrderedDict()
    _need(_are(arguments, list) and all(type(pair) in (list, tuple) and len(pair) == 2 for pair in arguments[0]))
    it.check_keys([pair[0] for pair in arguments[0]])
    return OrderedDict(arguments[0])


@_constructor("collections", "defaultdict", defaultdict)
def _default_dict(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(len(arguments) < 2)
    factory = arguments[0] if arguments else None
    _need(factory is None or (type(factory) is Global and factory.factory is not None))
    return _fresh(it, defaultdict(factory and factory.factory))


@_constructor("collections", "Counter", Counter)
def _counter(it: PlainUnpickler, arguments: Tuple) -> Any:
    counter: Any = _fresh(it, Counter())
    if arguments:
        _need(_are(arguments, dict))
        # Not its own update, which adds numbers up.
        dict.update(counter, arguments[0])
    return counter


@_constructor("collections", "deque")
def _deque(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(len(arguments) < 3)
    items, longest = (arguments + ((), None))[:2] if len(arguments) < 2 else arguments
    if len(arguments) == 1:
        longest = None
    _need(type(items) in (list, tuple) and (longest is None or (type(longest) is int and 0 <= longest < 1 << 62)))
    return _fresh(it, deque(items, longest))


def _set_of(kind: type) -> Callable:
    def make(it: PlainUnpickler, arguments: Tuple) -> Any:
        _need(not arguments or _are(arguments, (list, tuple)))
        items = arguments[0] if arguments else ()
        it.check_keys(list(items))
        return kind(items)

    return make


for _kind in (set, frozenset):
    _constructor("builtins", _kind.__name__, _kind)(_set_of(_kind))


def _copy_of(kind: type) -> Callable:
    def make(it: PlainUnpickler, arguments: Tuple) -> Any:
        _need(not arguments or _are(arguments, (list, tuple)))
        items = arguments[0] if arguments else ()
        it.spend(8 * len(items))
        return kind(items)

    return make


for _kind in (list, tuple):
    _constructor("builtins", _kind.__name__, _kind)(_copy_of(_kind))


@_constructor("builtins", "dict", dict)
def _dict(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(not arguments)
    return {}


@_constructor("argparse", "Namespace")
def _namespace(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(not arguments)
    return _fresh(it, Namespace())


@_constructor("types", "SimpleNamespace")
def _simple_namespace(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(not arguments)
    return _fresh(it, SimpleNamespace())


def _set_attributes(it: PlainUnpickler, target: Any, state: Any) -> None:
    _need(type(state) is dict and all(type(name) is str for name in state))
    vars(target).update(state)


for _kind in (Namespace, SimpleNamespace, OrderedDict):
    BUILDERS[_kind] = _set_attributes


# ======================================
# values of the standard library
# ======================================


def _number_of(kind: type) -> Callable:
    def make(it: PlainUnpickler, arguments: Tuple) -> Any:
        _need(not arguments or (len(arguments) == 1 and type(arguments[0]) in (bool, int, float)))
        return kind(*arguments)

    return make


for _kind in (bool, int, float):
    _constructor("builtins", _kind.__name__, _kind)(_number_of(_kind))
_NAMES["builtins", "long"] = _NAMES["builtins", "int"]


@_constructor("builtins", "str", str)
def _str(it: PlainUnpickler, arguments: Tuple) -> str:
    _need(not arguments)
    return ""


@_constructor("builtins", "complex", complex)
def _complex(it: PlainUnpickler, arguments: Tuple) -> complex:
    _need(all(type(part) in (int, float) for part in arguments))
    return complex(*arguments)


@_constructor("builtins", "slice")
def _slice(it: PlainUnpickler, arguments: Tuple) -> slice:
    _need(all(type(part) in (int, type(None)) for part in arguments))
    return slice(*arguments)


@_constructor("builtins", "range")
def _range(it: PlainUnpickler, arguments: Tuple) -> range:
    _need(all(type(part) is int and abs(part) < 1 << 62 for part in arguments))
    made = range(*arguments)
    # Native code walks it.
    _need(len(made) <= _LONGEST_RANGE)
    return made


@_constructor("_codecs", "encode")
def _encode(it: PlainUnpickler, arguments: Tuple) -> bytes:
    # How protocols below 3 write bytes.
    _need(_are(arguments, str, str) and arguments[1] in ("latin1", "latin-1"))
    it.spend(len(arguments[0]))
    return arguments[0].encode("latin-1")


def _bytes_of(kind: type) -> Callable:
    def make(it: PlainUnpickler, arguments: Tuple) -> Any:
        if not arguments:
            return kind()
        data = _encode(it, arguments) if len(arguments) == 2 else arguments[0]
        _need(type(data) in (bytes, bytearray))
        it.spend(len(data))
        return kind(data)

    return make


for _kind in (bytes, bytearray):
    _constructor("builtins", _kind.__name__)(_bytes_of(_kind))


def _path_of(kind: type) -> Callable:
    def make(it: PlainUnpickler, arguments: Tuple) -> Any:
        _need(all(type(part) is str for part in arguments))
        it.spend(sum(map(len, arguments)))
        return kind(*arguments)

    return make


for _kind in (pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path, type(pathlib.Path())):
    for _module in ("pathlib", "pathlib._local"):
        _constructor(_module, _kind.__name__)(_path_of(_kind))


@_constructor("datetime", "timedelta")
def _time_delta(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(_are(arguments, int, int, int) and max(map(abs, arguments)) < 1 << 40)
    return datetime.timedelta(*arguments)


@_constructor("datetime", "timezone")
def _time_zone(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(_are(arguments, datetime.timedelta) or _are(arguments, datetime.timedelta, str))
    return datetime.timezone(*arguments)


def _moment_of(kind: type, length: int) -> Callable:
    def make(it: PlainUnpickler, arguments: Tuple) -> Any:
        _need(_are(arguments, bytes) or (kind is not datetime.date and _are(arguments, bytes, datetime.timezone)))
        _need(len(arguments[0]) == length)
        return kind(*arguments)

    return make


for _kind, _size in ((datetime.date, 4), (datetime.time, 6), (datetime.datetime, 10)):
    _constructor("datetime", _kind.__name__)(_moment_of(_kind, _size))


@_constructor("decimal", "Decimal")
def _decimal(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(_are(arguments, str) and len(arguments[0]) <= 1000)
    number = decimal.Decimal(arguments[0])
    # An integer of it would not fit into memory.
    _need(not number.is_finite() or abs(number.adjusted()) <= _LARGEST_EXPONENT)
    return number


@_constructor("fractions", "Fraction")
def _fraction(it: PlainUnpickler, arguments: Tuple) -> Any:
    # Python before 3.11 writes a text.
    if _are(arguments, str):
        _need(len(arguments[0]) <= 2000 and re.fullmatch(r"-?\d+(/\d+)?", arguments[0]) is not None)
    else:
        _need(_are(arguments, int, int))
    return fractions.Fraction(*arguments)


@_constructor("uuid", "UUID")
def _uuid(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(not arguments)
    return uuid.UUID(int=0)


def _set_uuid(it: PlainUnpickler, target: Any, state: Any) -> None:
    number = state.get("int") if type(state) is dict else None
    _need(type(number) is int and 0 <= number < 1 << 128)
    object.__setattr__(target, "int", number)


BUILDERS[uuid.UUID] = _set_uuid


# ======================================
# values of torch
# ======================================


@_constructor("torch", "Size")
def _size(it: PlainUnpickler, arguments: Tuple) -> torch.Size:
    _need(_are(arguments, (tuple, list)))
    _need(all(type(length) is int and abs(length) < 1 << 63 for length in arguments[0]))
    return torch.Size(arguments[0])


@_constructor("torch", "device")
def _device(it: PlainUnpickler, arguments: Tuple) -> torch.device:
    _need(_are(arguments, str) or (_are(arguments, str, int) and 0 <= arguments[1] < 128))
    _need(re.fullmatch(r"[a-z]{1,20}(:\d{1,3})?", arguments[0]) is not None)
    return torch.device(*arguments)


@_constructor("torch.serialization", "_get_layout")
def _layout(it: PlainUnpickler, arguments: Tuple) -> torch.layout:
    _need(_are(arguments, str) and arguments[0].startswith("torch."))
    layout = getattr(torch, arguments[0][len("torch.") :], None)
    _need(type(layout) is torch.layout)
    return layout


_NAMES.update(NUMPY)
LEAVES.update((torch.dtype, torch.device, torch.layout, torch.memory_format))
LEAVES.update((datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone, uuid.UUID))
LEAVES.update(
    (decimal.Decimal, fractions.Fraction, pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path()))
)
