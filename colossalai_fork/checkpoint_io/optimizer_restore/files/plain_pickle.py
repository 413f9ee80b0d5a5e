"""Read pickles as data: an interpreter of pickle's opcodes that can only build plain data.

Nothing that a pickle names is looked up by that name: it is found in a table of constructors of this package, or refused.
What a pickle can make this interpreter do is bounded by the pickle's own length: the number and size of objects, the depth
of nesting, memo indices, and the number of ways to reach an object, which is what walking the result takes.
"""

import struct
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .sources import UnreadableFileError

__all__ = [
    "PlainUnpickler",
    "PickleError",
    "EndOfPickle",
    "LeftOut",
    "Opaque",
    "Global",
    "BUILDERS",
    "LEAVES",
    "MAX_NESTING",
    "shown",
]

MAX_NESTING = 100
# A level of nesting takes two or three marks.
_MAX_MARKS = 4 * MAX_NESTING
# Python refuses to write larger numbers as text.
_LONGEST_NUMBER = 1024
# Keys that could be chosen to collide: a dictionary of them takes time that grows with their number's square.
_MAX_ODD_KEYS = 4096


class PickleError(UnreadableFileError):
    """A pickle that is damaged, or holds more than plain data."""


class EndOfPickle(PickleError):
    """The bytes end before the pickle does."""


def shown(value: Any) -> str:
    """Return what comes from a file, fit for a message: short, and without characters that mean anything to a terminal."""
    text = value if isinstance(value, str) else repr(value)
    return ascii(text[:120])[1:-1] + ("..." if len(text) > 120 else "")


class LeftOut(Exception):
    """A pickle refers to a value that a shortcut has not made. The pickle has to be read without shortcuts."""


class Global:
    """
    Something that a pickle may name and call.

    Args:
        name (str): The module and name that stand in the pickle.
        call (Callable): Makes the value: takes the interpreter and a tuple of arguments.
        factory (Any, optional): What a ``defaultdict`` that names it makes its values with.
    """

    __slots__ = ("name", "call", "factory")

    def __init__(self, name: str, call: Callable[["PlainUnpickler", Tuple], Any], factory: Any = None) -> None:
        self.name = name
        self.call = call
        self.factory = factory


class Opaque:
    """
    What only torch's own loader can make, of a class that the user has allowed. Stands for it while the rest is checked.

    Args:
        name (str): The module and name that stand in the pickle.
        parts (List[Any]): What it would be made of.
        holds_items (bool): Whether it is a kind of list or dictionary.
    """

    __slots__ = ("name", "parts", "holds_items")

    def __init__(self, name: str, parts: List[Any], holds_items: bool = False) -> None:
        self.name = name
        self.parts = parts
        self.holds_items = holds_items


_DICTS = (dict, OrderedDict, defaultdict, Counter)
_PLAIN_KEYS = frozenset((str, bytes, bool, type(None)))
_ODD_KEYS = frozenset((int, float, torch.dtype, torch.device))
_INT32 = struct.Struct("<i").unpack_from
_UINT16 = struct.Struct("<H").unpack_from
_UINT32 = struct.Struct("<I").unpack_from
_FLOAT64 = struct.Struct(">d").unpack_from
_NOT_KEPT = object()


class PlainUnpickler:
    """
    Interprets one pickle.

    Args:
        data (bytes): What holds the pickle.
        find (Callable[[str, str], Any]): Gives what a module and a name stand for: a value, or a :class:`Global`. Raises
            PickleError if they stand for nothing that may be used.
        resolve (Callable[[Any], Any], optional): Gives the object that a persistent id stands for.
        position (int, optional): Where the pickle begins.
        shortcut (Callable[["PlainUnpickler", Any], bool], optional): Is asked at each reference to a :class:`Global` whether
            it can do what follows in one step. Must have the effect that the opcodes would have.
        root_kind (type, optional): What the pickle as a whole may be beside plain data.
    """

    def __init__(
        self,
        data: bytes,
        find: Callable[[str, str], Any],
        resolve: Optional[Callable[[Any], Any]] = None,
        position: int = 0,
        shortcut: Optional[Callable[["PlainUnpickler", Any], bool]] = None,
        root_kind: Optional[type] = None,
    ) -> None:
        self.data = data
        self.position = position
        self.stack: List[Any] = []
        self.memo: List[Any] = []
        # Containers whose destructors recurse, and end the process if they are nested deep enough.
        self.fragile: List[Any] = []
        self._marks: List[List[Any]] = []
        self._find = find
        self._resolve = resolve
        self._shortcut = shortcut
        self._root_kind = root_kind
        self._odd_keys = 0
        self._room = 24 * len(data) + (16 << 20)

    def load(self) -> Any:
        """
        Build the plain data of the pickle.

        Returns:
            Any: What the pickle holds. :attr:`position` is behind it then.

        Raises:
            PickleError: If the pickle is damaged, or holds more than plain data.
        """
        begin = self.position
        data, handlers = self.data, _HANDLERS
        try:
            while True:
                opcode = data[self.position]
                self.position += 1
                if opcode == 46:
                    break
                handlers[opcode](self)
            (content,) = self.stack
            if self._marks:
                raise ValueError
            if type(content) is not self._root_kind:
                _check_shape(content, self.position - begin, self.fragile)
            return content
        except (UnreadableFileError, LeftOut):
            _dismantle(self.fragile)
            raise
        except (IndexError, ValueError, TypeError, KeyError, OverflowError, struct.error) as error:
            _dismantle(self.fragile)
            # An instruction takes up to nine bytes.
            if self.position + 9 > len(data):
                raise EndOfPickle("a pickle in it is cut short")
            raise PickleError("a pickle in it is damaged at byte {}".format(self.position - begin)) from error

    def take(self, length: int) -> bytes:
        """Return the next bytes of the pickle."""
        position = self.position
        if position + length > len(self.data):
            self.position = len(self.data)
            raise EndOfPickle("a pickle in it is cut short")
        self.position = position + length
        return self.data[position : position + length]

    def spend(self, size: int) -> None:
        """
        Count bytes of memory against what the pickle may take.

        Args:
            size (int): The bytes of memory that a value takes.

        Raises:
            PickleError: If what the pickle holds takes far more than the pickle.
        """
        self._room -= size
        if self._room < 0:
            raise PickleError("a pickle in it holds far more than its length allows")

    def check_keys(self, keys: List[Any]) -> None:
        """
        Refuse keys whose lookup could take long or run code.

        Args:
            keys (List[Any]): What is to be looked up in a dictionary or set.

        Raises:
            PickleError: If it is anything but texts, numbers, or flat tuples of them.
        """
        kinds = set(map(type, keys))
        if kinds <= _PLAIN_KEYS:
            return
        if kinds == {int} and -(1 << 63) <= min(keys) and max(keys) < 1 << 64:
            return
        for key in keys:
            if type(key) in _PLAIN_KEYS or (type(key) is int and -(1 << 63) <= key < 1 << 64):
                continue
            parts = key if type(key) is tuple or type(key) is torch.Size else (key,)
            if not all(type(part) in _PLAIN_KEYS or type(part) in _ODD_KEYS for part in parts):
                raise PickleError("it holds a dictionary or set with keys other than texts and numbers")
            self._odd_keys += 1
            if self._odd_keys > _MAX_ODD_KEYS:
                raise PickleError("it holds too many dictionary keys that are neither texts nor small numbers")

    def remember(self, index: int) -> None:
        """Keep the value on top of the stack under a memo index."""
        memo = self.memo
        if index < len(memo):
            memo[index] = self.stack[-1]
            self._shortcut = None  # what it has learned of the memo may be wrong now
            return
        if index > self.position:
            raise PickleError("a pickle in it numbers more values than it holds")
        while len(memo) < index:
            memo.append(_NOT_KEPT)
        memo.append(self.stack[-1])

    def recall(self, index: int) -> None:
        """Put the value of a memo index on the stack."""
        value = self.memo[index]
        if value.__class__ is Global and self._shortcut is not None and self._shortcut(self, value):
            return
        if value is LeftOut:
            raise LeftOut()
        if value is _NOT_KEPT:
            raise PickleError("a pickle in it refers to a value that it does not hold")
        self.stack.append(value)

    def pop_marked(self) -> List[Any]:
        """Return what has been put on the stack since the last mark, and take it off."""
        items = self.stack
        self.stack = self._marks.pop()
        return items


# ======================================
# opcodes
# ======================================


def _mark(it: PlainUnpickler) -> None:
    if len(it._marks) >= _MAX_MARKS:
        raise PickleError("it holds containers that are nested too deep")
    it._marks.append(it.stack)
    it.stack = []


def _constant(value: Any) -> Callable[[PlainUnpickler], None]:
    return lambda it: it.stack.append(value)


def _protocol(it: PlainUnpickler) -> None:
    if _length(it, 1) > 5:
        raise PickleError("a pickle in it is of an unknown protocol")


def _frame(it: PlainUnpickler) -> None:
    # Only tells how much to read at once, yet Python's own reader wants so much to be there.
    length = _length(it, 8)
    if length > len(it.data) - it.position:
        raise EndOfPickle("a pickle in it is cut short")


def _byte(it: PlainUnpickler) -> None:
    it.stack.append(it.data[it.position])
    it.position += 1


def _number(unpack: Callable, length: int) -> Callable[[PlainUnpickler], None]:
    def number(it: PlainUnpickler) -> None:
        it.stack.append(unpack(it.data, it.position)[0])
        it.position += length

    return number


def _length(it: PlainUnpickler, width: int) -> int:
    return int.from_bytes(it.take(width), "little")


def _long(width: int) -> Callable[[PlainUnpickler], None]:
    def number(it: PlainUnpickler) -> None:
        length = _length(it, width)
        if length > _LONGEST_NUMBER:
            raise PickleError("it holds a number of {} bytes".format(length))
        it.stack.append(int.from_bytes(it.take(length), "little", signed=True))

    return number


def _text(width: int) -> Callable[[PlainUnpickler], None]:
    return lambda it: it.stack.append(it.take(_length(it, width)).decode("utf-8", "surrogatepass"))


def _bytes(width: int, kind: type = bytes) -> Callable[[PlainUnpickler], None]:
    return lambda it: it.stack.append(kind(it.take(_length(it, width))))


def _empty(kind: type, size: int) -> Callable[[PlainUnpickler], None]:
    def empty(it: PlainUnpickler) -> None:
        it.spend(size)
        it.stack.append(kind())

    return empty


def _append(it: PlainUnpickler) -> None:
    _extend(it, [it.stack.pop()])


def _appends(it: PlainUnpickler) -> None:
    _extend(it, it.pop_marked())


def _extend(it: PlainUnpickler, items: List[Any]) -> None:
    target = it.stack[-1]
    if type(target) is Opaque and target.holds_items:
        target.parts.extend(items)
    elif type(target) is list or type(target) is deque:
        target.extend(items)
    else:
        raise PickleError("a pickle in it appends to something that is no list")


def _set_item(it: PlainUnpickler) -> None:
    value = it.stack.pop()
    key = it.stack.pop()
    _update(it, [key], [value])


def _set_items(it: PlainUnpickler) -> None:
    items = it.pop_marked()
    if len(items) % 2:
        raise PickleError("a pickle in it holds a key without a value")
    _update(it, items[::2], items[1::2])


def _update(it: PlainUnpickler, keys: List[Any], values: List[Any]) -> None:
    target = it.stack[-1]
    if type(target) is Opaque and target.holds_items:
        target.parts.extend(keys)
        target.parts.extend(values)
    elif type(target) in _DICTS:
        it.check_keys(keys)
        dict.update(target, zip(keys, values)) if type(target) is not OrderedDict else target.update(zip(keys, values))
    else:
        raise PickleError("a pickle in it sets items of something that is no dictionary")


def _add_items(it: PlainUnpickler) -> None:
    items = it.pop_marked()
    if type(it.stack[-1]) is not set:
        raise PickleError("a pickle in it adds to something that is no set")
    it.check_keys(items)
    it.stack[-1].update(items)


def _frozenset(it: PlainUnpickler) -> None:
    items = it.pop_marked()
    it.spend(216)
    it.check_keys(items)
    it.stack.append(frozenset(items))


def _tuple(it: PlainUnpickler) -> None:
    items = it.pop_marked()
    it.spend(64)
    it.stack.append(tuple(items))


def _short_tuple(length: int) -> Callable[[PlainUnpickler], None]:
    def short_tuple(it: PlainUnpickler) -> None:
        if len(it.stack) < length:
            raise IndexError
        it.spend(64)
        it.stack[-length:] = [tuple(it.stack[-length:])]

    return short_tuple


def _global(it: PlainUnpickler) -> None:
    names = []
    for _ in range(2):
        end = it.data.find(b"\n", it.position, it.position + 1000)
        if end < 0:
            it.take(1000)
            raise PickleError("a pickle in it names something of no length")
        names.append(it.data[it.position : end].decode("utf-8"))
        it.position = end + 1
    it.stack.append(it._find(*names))


def _stack_global(it: PlainUnpickler) -> None:
    name = it.stack.pop()
    module = it.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise PickleError("a pickle in it names something by other than a text")
    it.stack.append(it._find(module, name))


def _reduce(it: PlainUnpickler) -> None:
    arguments = it.stack.pop()
    target = it.stack[-1]
    if type(arguments) is not tuple:
        raise PickleError("a pickle in it calls something without arguments")
    it.spend(256)
    if type(target) is Opaque:
        it.stack[-1] = Opaque(target.name, list(arguments), target.holds_items)
    elif type(target) is Global:
        try:
            it.stack[-1] = target.call(it, arguments)
        except UnreadableFileError:
            raise
        except Exception as error:
            raise PickleError("it holds a {} that cannot be made ({})".format(target.name, shown(str(error))))
    else:
        raise PickleError("a pickle in it calls something that is no constructor")


def _build(it: PlainUnpickler) -> None:
    state = it.stack.pop()
    target = it.stack[-1]
    if type(target) is Opaque:
        target.parts.append(state)
        return
    build = BUILDERS.get(type(target))
    if build is None:
        raise PickleError("a pickle in it changes the inside of a {}".format(type(target).__name__))
    build(it, target, state)


def _persistent(it: PlainUnpickler) -> None:
    if it._resolve is None:
        raise PickleError("a pickle in it refers to an object outside of itself")
    it.stack.append(it._resolve(it.stack.pop()))


def _put(width: int) -> Callable[[PlainUnpickler], None]:
    return lambda it: it.remember(_length(it, width))


def _get_short(it: PlainUnpickler) -> None:
    value = it.memo[it.data[it.position]]
    it.position += 1
    if value.__class__ is str:
        it.stack.append(value)
    else:
        it.recall(it.data[it.position - 1])


def _get_long(it: PlainUnpickler) -> None:
    it.position += 4
    it.recall(_UINT32(it.data, it.position - 4)[0])


def _unknown(it: PlainUnpickler) -> None:
    raise PickleError("a pickle in it has an unknown instruction at byte {}".format(it.position - 1))


# How attributes of a value may be set, by its type. Filled where the values are made.
BUILDERS: Dict[type, Callable[[PlainUnpickler, Any, Any], None]] = {}

_HANDLERS: List[Callable[[PlainUnpickler], None]] = [_unknown] * 256
for _opcode, _handler in {
    b"\x80": _protocol,
    b"\x95": _frame,
    b"(": _mark,
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b")": _constant(()),
    b"K": _byte,
    b"M": _number(_UINT16, 2),
    b"J": _number(_INT32, 4),
    b"G": _number(_FLOAT64, 8),
    b"\x8a": _long(1),
    b"\x8b": _long(4),
    b"\x8c": _text(1),
    b"X": _text(4),
    b"\x8d": _text(8),
    b"C": _bytes(1),
    b"B": _bytes(4),
    b"\x8e": _bytes(8),
    b"\x96": _bytes(8, bytearray),
    b"]": _empty(list, 72),
    b"}": _empty(dict, 80),
    b"\x8f": _empty(set, 232),
    b"a": _append,
    b"e": _appends,
    b"s": _set_item,
    b"u": _set_items,
    b"\x90": _add_items,
    b"\x91": _frozenset,
    b"t": _tuple,
    b"\x85": _short_tuple(1),
    b"\x86": _short_tuple(2),
    b"\x87": _short_tuple(3),
    b"c": _global,
    b"\x93": _stack_global,
    b"R": _reduce,
    b"\x81": _reduce,
    b"b": _build,
    b"Q": _persistent,
    b"q": _put(1),
    b"r": _put(4),
    b"\x94": lambda it: it.remember(len(it.memo)),
    b"h": _get_short,
    b"j": _get_long,
}.items():
    _HANDLERS[_opcode[0]] = _handler


# ======================================
# the shape of what has been read
# ======================================

# Types that hold no other values.
LEAVES = {str, bytes, bytearray, bool, int, float, complex, type(None), range, slice}


def parts_of(value: Any) -> Any:
    """
    Give the values that a value holds.

    Args:
        value (Any): A container.

    Returns:
        Any: What it holds, or None if it is nothing that a pickle may hold.
    """
    kind = type(value)
    if kind is dict or kind is defaultdict or kind is Counter:
        return value.values()
    if kind is OrderedDict:
        return [*value.values(), *vars(value).values()]
    if kind in (list, tuple, set, frozenset, deque, torch.Size):
        return value
    if kind is Opaque:
        return value.parts
    if kind in (Namespace, SimpleNamespace):
        return vars(value).values()
    return None


def _check_shape(content: Any, length: int, fragile: List[Any]) -> None:
    # How deep the containers go, and how many values there are if shared ones are counted each time they are reached. Each
    # container is looked into twice: to find those inside it, and, once these are known, to add them up.
    leaves = LEAVES
    most = 4 * length + 100_000
    known: Dict[int, Optional[Tuple[int, int]]] = {}
    todo = [content]
    around = 0
    while todo:
        value = todo[-1]
        if known.get(id(value)) is not None:
            todo.pop()
            continue
        parts = () if type(value) in leaves else parts_of(value)
        if parts is None:
            raise _unexpected(value)
        inside = [] if leaves.issuperset(map(type, parts)) else [part for part in parts if type(part) not in leaves]
        if inside and id(value) not in known:
            known[id(value)] = None
            around += 1
            if around >= MAX_NESTING:
                raise PickleError("it holds containers that are nested too deep")
            _look_into(inside, known, todo)
            continue
        depth, count = 0, len(parts)
        for part in inside:
            depth_inside, count_inside = known[id(part)]
            depth = max(depth, depth_inside)
            count += count_inside
        if depth >= MAX_NESTING:
            raise PickleError("it holds containers that are nested too deep")
        if count > most:
            raise PickleError("it holds containers that share others so often that they cannot be walked")
        known[id(value)] = (depth + 1, count)
        around -= bool(inside)
        todo.pop()
    _dismantle([container for container in fragile if id(container) not in known])


def _look_into(inside: List[Any], known: Dict[int, Any], todo: List[Any]) -> None:
    leaves = LEAVES
    for part in inside:
        before = known.get(id(part), ())
        if before is None:
            raise PickleError("it holds a container that holds itself")
        if before == ():
            # The state of a parameter mostly holds nothing but tensors and numbers, and needs no second look.
            if type(part) is dict and leaves.issuperset(map(type, part.values())):
                known[id(part)] = (1, len(part))
            else:
                todo.append(part)


def _unexpected(value: Any) -> PickleError:
    name = value.name if type(value) is Global else "{}.{}".format(type(value).__module__, type(value).__qualname__)
    return PickleError("it holds {}, which is no plain data".format(shown(name)))


def _dismantle(fragile: List[Any]) -> None:
    for container in fragile:
        if hasattr(container, "clear"):
            container.clear()
