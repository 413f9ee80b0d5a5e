"""Numbers and arrays of numpy in pickles, e.g. a learning rate taken from ``numpy.linspace``.

A dtype that a pickle describes in full can make an address of an object out of a number, so only names of numeric dtypes are
taken from it, and the byte order.
"""

from typing import Any, Dict, Tuple

from .plain_pickle import BUILDERS, LEAVES, Global, PickleError, PlainUnpickler

__all__ = ["NUMPY"]

# Constructors by module and name, none if numpy is not there.
NUMPY: Dict[Tuple[str, str], Any] = {}

_DTYPES = frozenset("b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 f16 c8 c16 c32".split())

try:
    import numpy
except ImportError:
    numpy = None


def _need(condition: bool) -> None:
    if not condition:
        raise PickleError("it holds a numpy value that is not a number or an array of numbers")


def _dtype(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(arguments[:1] != () and type(arguments[0]) is str and arguments[0] in _DTYPES)
    _need(all(type(flag) in (bool, int) for flag in arguments[1:]) and len(arguments) <= 3)
    # One of its own, because what follows may set its byte order.
    return numpy.dtype(arguments[0], copy=True)


def _set_byte_order(it: PlainUnpickler, dtype: Any, state: Any) -> None:
    _need(type(state) is tuple and len(state) in (8, 9) and type(state[0]) is int and state[0] in (3, 4))
    _need(type(state[1]) is str and state[1] in ("<", ">", "=", "|") and state[2:8] == (None, None, None, -1, -1, 0))
    _need(state[8:] in ((), (None,)))
    _need(all(type(part) in (int, type(None)) for part in state[2:]))
    dtype.__setstate__((3, state[1], None, None, None, -1, -1, 0))


def _scalar(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(len(arguments) == 2 and type(arguments[1]) is bytes)
    dtype, data = arguments
    _need(isinstance(dtype, numpy.dtype) and len(data) == dtype.itemsize)
    return numpy.frombuffer(data, dtype=dtype, count=1)[0]


def _empty_array(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(len(arguments) == 3 and arguments[0] is _ARRAY and arguments[1] == (0,) and arguments[2] == b"b")
    return numpy.ndarray((0,), "b")


def _fill_array(it: PlainUnpickler, array: Any, state: Any) -> None:
    _need(type(state) is tuple and len(state) == 5 and type(state[0]) is int and state[0] == 1)
    _, shape, dtype, by_columns, data = state
    _need(type(by_columns) in (bool, int) and type(data) is bytes)
    _check_array(it, shape, dtype, len(data))
    array.__setstate__((1, shape, dtype, bool(by_columns), data))


def _array_of_buffer(it: PlainUnpickler, arguments: Tuple) -> Any:
    _need(len(arguments) == 4 and type(arguments[0]) in (bytes, bytearray) and arguments[3] in ("C", "F"))
    data, dtype, shape, order = arguments
    _check_array(it, shape, dtype, len(data))
    return numpy.frombuffer(data, dtype=dtype).reshape(shape, order=order).copy(order=order)


def _check_array(it: PlainUnpickler, shape: Any, dtype: Any, length: int) -> None:
    _need(type(shape) is tuple and len(shape) <= 32 and isinstance(dtype, numpy.dtype))
    _need(all(type(size) is int and 0 <= size < 1 << 62 for size in shape))
    size = dtype.itemsize
    for each in shape:
        size *= each
    _need(size == length)
    it.spend(2 * size)


def _not_called(it: PlainUnpickler, arguments: Tuple) -> Any:
    raise PickleError("it holds a numpy array that is not saved as numpy saves it")


_ARRAY = Global("numpy.ndarray", _not_called)

if numpy is not None:
    NUMPY["numpy", "dtype"] = Global("numpy.dtype", _dtype)
    NUMPY["numpy", "ndarray"] = _ARRAY
    # numpy has moved these, and files name the old place and the new one.
    for _core in ("numpy.core", "numpy._core"):
        NUMPY[_core + ".multiarray", "scalar"] = Global("numpy scalar", _scalar)
        NUMPY[_core + ".multiarray", "_reconstruct"] = Global("numpy array", _empty_array)
        NUMPY[_core + ".numeric", "_frombuffer"] = Global("numpy array", _array_of_buffer)
    BUILDERS[numpy.ndarray] = _fill_array
    LEAVES.add(numpy.ndarray)
    for _name in _DTYPES:
        try:
            _made = numpy.dtype(_name)
        except TypeError:
            continue  # this machine has no numbers of that size
        BUILDERS[type(_made)] = _set_byte_order
        LEAVES.update((type(_made), _made.type))
