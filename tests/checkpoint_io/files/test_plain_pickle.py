"""Pickles as data: what plain data is, what is refused, and that no pickle costs more than its length allows."""

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import os
import pathlib
import pickle
import re
import struct
import types
import uuid

import numpy
import pytest
import torch
from guarded import guarded
from hostile_files import PROTOCOL, call, integer, name, pickled, text

from colossalai_fork.checkpoint_io.optimizer_restore.files.pickled_tensors import TensorUnpickler
from colossalai_fork.checkpoint_io.optimizer_restore.files.plain_pickle import MAX_NESTING, PickleError

PLAIN = [
    None,
    True,
    -1,
    2**70,
    -(2**2000),
    1.5,
    float("inf"),
    2j,
    "text \u20ac \ud800 \0",
    b"bytes \xff",
    bytearray(b"bytes"),
    (),
    (1, (2, [3, {4: 5}])),
    {"a": 1, 2: "b", 2.5: 3, None: 4, True: 5, b"c": 6, (1, "a"): 7, -(2**40): 8, 2**64: 9},
    {1, 2},
    frozenset([1, "a"]),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.defaultdict(list, {1: [2]}),
    collections.defaultdict(None, {1: 2}),
    collections.Counter("aab"),
    collections.deque([1, 2], maxlen=3),
    collections.deque([[1]]),
    slice(1, None, 2),
    range(3, 30, 4),
    torch.Size([2, 3]),
    torch.device("cuda", 1),
    torch.bfloat16,
    torch.strided,
    pathlib.PurePosixPath("/a/b"),
    pathlib.PureWindowsPath("c:/a"),
    pathlib.Path("a/b"),
    datetime.datetime(2020, 2, 3, 4, 5, 6, 7),
    datetime.datetime(2020, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "here")),
    datetime.date(2020, 2, 3),
    datetime.time(4, 5),
    datetime.timedelta(1, 2, 3),
    datetime.timezone.utc,
    decimal.Decimal("1.50"),
    decimal.Decimal("NaN"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=7),
    argparse.Namespace(a=1, b=[2]),
    types.SimpleNamespace(a=1),
    numpy.float64(0.1),
    numpy.int32(-3),
    numpy.bool_(True),
    numpy.complex64(1j),
    numpy.array([0.9, 0.99]),
    numpy.array([[1, 2], [3, 4]], order="F"),
    numpy.array([1, 2], dtype=">i4"),
    numpy.zeros((0, 3)),
    numpy.dtype("f4"),
]


def loads(data):
    def nothing(*arguments):
        raise PickleError("no data")

    content, end = TensorUnpickler(nothing, 1 << 20).load(data)
    assert end == len(data)
    return content


def same(one, other):
    """Equal, of the same types all through."""
    if type(one) is not type(other):
        return False
    if isinstance(one, numpy.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes("A") == other.tobytes("A")
    if isinstance(one, collections.defaultdict) and one.default_factory is not other.default_factory:
        return False
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and all(map(same, one.values(), other.values()))
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", PLAIN, ids=lambda value: f"{type(value).__name__}-{str(value)[:20]!a}")
def test_plain_data_is_what_it_was(value, protocol):
    data = pickle.dumps([value, {"again": value}], protocol)
    assert same(loads(data), pickle.loads(data))


def test_what_is_shared_stays_shared():
    shared = [1]
    first, second = loads(pickle.dumps([shared, shared]))
    assert first is second


class Colour(enum.Enum):
    RED = 1


class Own:
    """A class of the user's own."""


class RunsCode:
    """Pickles into a call of os.mkdir, which leaves a trace if anyone opens the pickle without care."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize(
    "value, what",
    [
        (Colour.RED, r"test_plain_pickle\.Colour"),
        (Own(), r"test_plain_pickle\.Own"),
        (os.getcwd, r"posix\.getcwd|nt\.getcwd"),
        (numpy.array(["a"]), "numpy value that is not a number"),
        (numpy.array([None]), "numpy value that is not a number"),
        (numpy.datetime64("2020-01-01"), "numpy value that is not a number"),
        (float, r"float, which is no plain data"),
        ({Own: 1}, r"test_plain_pickle\.Own"),
        ({frozenset([1]): 1}, "keys other than"),
        ({((1, 2), 3): 1}, "keys other than"),
        (2**10000, "a number of"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_anything_else_is_refused_by_name(value, what):
    for protocol in (2, 4):
        with pytest.raises(PickleError, match=what):
            loads(pickle.dumps(value, protocol))


def test_the_call_that_allows_a_class_is_named():
    with pytest.raises(PickleError, match=r"torch\.serialization\.add_safe_globals\(\[test_plain_pickle\.Own\]\)"):
        loads(pickle.dumps(Own()))


def test_code_does_not_run(tmp_path):
    attack = pickle.dumps(RunsCode(tmp_path / "trace"))
    with pytest.raises(PickleError, match="could run code"):
        loads(attack)
    assert not (tmp_path / "trace").exists()
    pickle.loads(attack)
    assert (tmp_path / "trace").exists(), "the attack itself does not work, so this test proves nothing"


FUNCTIONS = [
    ("os", "system"),
    ("builtins", "eval"),
    ("__builtin__", "getattr"),
    ("torch", "load"),
    ("torch.storage", "_load_from_bytes"),
    ("numpy", "load"),
    ("collections", "namedtuple"),
    ("pathlib", "Path.unlink"),
    ("torch", "Tensor.__reduce__"),
]


@pytest.mark.parametrize("module, attribute", FUNCTIONS)
def test_no_other_name_stands_for_anything(module, attribute):
    with pytest.raises(PickleError):
        loads(pickled(call(module, attribute, text("x"))))


CHANGED = b"N}" + text("__defaults__") + text("evil") + b"\x85s\x86b"


@pytest.mark.parametrize(
    "target",
    [
        name("torch._utils", "_rebuild_tensor_v2"),
        name("numpy.core.multiarray", "scalar"),
        name("collections", "deque"),
        call("collections", "deque"),
        call("decimal", "Decimal", text("1")),
        call("pathlib", "PurePosixPath", text("a")),
        call("torch", "device", text("cpu")),
        b"}",
        b"K\x01",
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_inside_of_nothing_is_changed(target):
    with pytest.raises(PickleError):
        loads(pickled(target, CHANGED))


@pytest.mark.parametrize(
    "attack",
    [
        # A dtype of objects, and one with a part of another kind, told by its state.
        call("numpy", "dtype", text("O"), b"\x89", b"\x88"),
        call("numpy", "dtype", text("f8"), b"\x89", b"\x88")
        + (b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb"),
        call("numpy", "dtype", text("V8"), b"\x89", b"\x88"),
        call("numpy", "dtype", text("f8"), b"\x89", b"\x88")
        + (b"(K\x03" + text("|") + name("numpy", "dtype") + b"K\x01\x85\x86NNK\x08K\x01K\x00tb"),
        call("numpy", "dtype", text("2f8"), b"\x89", b"\x88"),
        call("numpy", "dtype", text("f8,f8"), b"\x89", b"\x88"),
        # Too few bytes, and too many.
        call("numpy.core.multiarray", "scalar", call("numpy", "dtype", text("f8")), b"C\x04abcd"),
        call("numpy.core.multiarray", "scalar", call("numpy", "dtype", text("f8")), b"C\x09abcdefghi"),
        # An array that claims more than it has.
        call("numpy.core.multiarray", "_reconstruct", name("numpy", "ndarray"), b"K\x00\x85", b"C\x01b")
        + (b"(K\x01J\x00\x00\x00\x40\x85" + call("numpy", "dtype", text("f8")) + b"\x89C\x08abcdefghtb"),
        call("numpy.core.multiarray", "_reconstruct", name("numpy", "ndarray"), b"J\x00\x00\x00\x40\x85", b"C\x01b"),
    ],
    ids=["object", "flags", "void", "subarray", "repeated", "fields", "short", "long", "array", "large array"],
)
def test_numpy_values_are_numbers_that_are_there(attack):
    with pytest.raises(PickleError):
        loads(pickled(attack))


DEEP = 150_000


def shared(opening, closing):
    """Thirty levels, each of which holds the one before twice, in one tuple."""
    levels = b"".join(opening % (level, level) + closing + b"q%c" % (level + 1) for level in range(30))
    return PROTOCOL + b"(]q\x00" + levels + b"t."


def deques(depth):
    # Under the next deque lies what goes into it: the constructor is taken from the memo each time.
    return b"(" + name("collections", "deque") + b"q\x00" + b"h\x00)R" * depth + b"a" * (depth - 1) + b"t"


def default_dicts(depth):
    entry = b"h\x00)RK\x00"
    return b"(" + name("collections", "defaultdict") + b"q\x00" + entry * depth + b"N" + b"s" * depth + b"t"


def namespaces(depth):
    start = name("argparse", "Namespace") + b"q\x00" + text("a") + b"q\x01"
    return b"(" + start + b"h\x00)\x81}h\x01" * depth + b"N" + b"sb" * depth + b"t"


DEEPLY = "nested too deep"
HOSTILE = {
    "memo index": (b"Nr\x00\x00\x00\x10", "numbers more values"),
    "deque of a range": (call("collections", "deque", call("builtins", "range", b"K\x09"), b"K\x00"), "wrong kind"),
    "list of a range": (call("builtins", "list", call("builtins", "range", b"K\x09")), "wrong kind"),
    "long range": (call("builtins", "range", integer(10**18)), "wrong kind"),
    "long bytearray": (call("builtins", "bytearray", integer(8 << 30)), "wrong kind"),
    "long bytes": (call("builtins", "bytes", integer(8 << 30)), "wrong kind"),
    "text of a value": (call("builtins", "str", b"]"), "wrong kind"),
    "long text": (b"X\xff\xff\xff\x7f", "cut short"),
    "longer text": (b"\x8d" + struct.pack("<Q", 1 << 62), "cut short"),
    "long number": (b"\x8b" + struct.pack("<i", 1 << 20) + bytes(1 << 20), "a number of"),
    "power": (call("decimal", "Decimal", text("1e999999")), "wrong kind"),
    "power as fraction": (call("fractions", "Fraction", text("1e999999999")), "wrong kind"),
    "nested tuples": (b"N" + b"\x85" * DEEP, DEEPLY),
    "nested tuple as key": (b"}N" + b"\x85" * DEEP + b"Ns", "keys other than|far more than"),
    "nested lists": (b"]" * DEEP + b"a" * (DEEP - 1), DEEPLY),
    "nested dictionaries": (b"}K\x00" * DEEP + b"N" + b"s" * DEEP, DEEPLY),
    "nested marks": (b"(" * DEEP + b"t" * DEEP, DEEPLY),
    "nested deques": (deques(DEEP // 3), DEEPLY),
    "nested defaultdicts": (default_dicts(DEEP // 3), DEEPLY),
    "nested namespaces": (namespaces(DEEP // 3), DEEPLY),
    "nested slices": (call("builtins", "slice", call("builtins", "slice", b"K\x01")), "wrong kind"),
    "many sets": (b"(" + b"\x8f" * DEEP + b"t", "far more than"),
    "many dictionaries": (b"(" + b"}" * 5 * DEEP + b"t", "far more than"),
    "many tuples": (b"(" + b"N\x85\x85\x85\x85\x85" * DEEP + b"t", "far more than"),
    "colliding keys": (
        b"}(" + b"".join(integer(i * (2**61 - 1)) + b"N" for i in range(8, 40000)) + b"u",
        "too many dictionary keys",
    ),
    "shared lists": (shared(b"](h%ch%c", b"e")[2:-1], "cannot be walked"),
    "shared tuples": (shared(b"h%ch%c", b"\x86")[2:-1], "cannot be walked"),
    "shared dictionaries": (shared(b"}(K\x00h%cK\x01h%c", b"u")[2:-1], "cannot be walked"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_small_pickle_costs_little(what):
    instructions, reason = HOSTILE[what]
    outcome = guarded(loads, pickled(instructions), seconds=20)
    assert outcome.kind == "raised" and outcome.value[0] in ("PickleError", "EndOfPickle"), outcome
    assert re.search(reason, outcome.value[1]), outcome


def test_a_container_that_holds_itself_is_refused():
    itself = []
    itself.append(itself)
    inside = {"a": [1]}
    inside["a"].append((inside,))
    for value in (itself, inside):
        with pytest.raises(PickleError, match="holds itself"):
            loads(pickle.dumps(value))


def test_nesting_has_a_limit():
    def nest(depth):
        value = None
        for _ in range(depth):
            value = [value]
        return value

    assert loads(pickle.dumps(nest(MAX_NESTING - 1))) is not None
    with pytest.raises(PickleError, match="too deep"):
        loads(pickle.dumps(nest(MAX_NESTING + 1)))


@pytest.mark.parametrize(
    "data", [b"\x80\x04\x95" + struct.pack("<Q", 3) + b"N.", b"\x80\x06N."], ids=["frame", "protocol"]
)
def test_what_pickle_itself_refuses_is_refused(data):
    """Found by the fuzzer."""
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        pickle.loads(data)
    with pytest.raises(PickleError):
        loads(data)


@pytest.mark.parametrize("protocol", [2, 4])
def test_no_pickle_that_is_cut_short_or_changed_gives_anything_but_data_or_an_error(protocol):
    data = pickle.dumps([PLAIN, {"state": {0: {"step": 1, "list": [1, (2, 3)]}}}], protocol)
    for length in range(0, len(data), 7):
        with pytest.raises(PickleError):
            loads(data[:length])
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 + position % 255
        try:
            TensorUnpickler(None, 1 << 20).load(bytes(changed))
        except PickleError:
            pass
