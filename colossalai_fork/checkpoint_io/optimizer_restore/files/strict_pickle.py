"""Open pickles as data: only the few constructors that optimizer checkpoints are made of may be called.

``torch.load(weights_only=True)`` gives the same promise with an interpreter written in Python, which takes two to three
times as long for checkpoints of many small tensors. Here the standard library's unpickler runs, and every global that a
file asks for goes through one allow-list. A file that asks for anything else is handed to torch's own weights-only
loader (torch files) or refused (pickled values inside safetensors files).
"""

import collections
import io
import pickle
from typing import Any, BinaryIO, Callable, Dict, Optional, Tuple

import torch

__all__ = ["StrictUnpickler", "Unchangeable", "loads"]

_BUILTINS = (bool, bytearray, bytes, complex, dict, float, frozenset, int, list, range, set, slice, str, tuple)

_CONTAINERS: Dict[Tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "deque"): collections.deque,
    ("torch", "Size"): torch.Size,
    ("torch", "device"): torch.device,
}
_CONTAINERS.update({("builtins", kind.__name__): kind for kind in _BUILTINS})
# Protocol 2 and older name the builtins module as Python 2 did.
_CONTAINERS.update({("__builtin__", kind.__name__): kind for kind in _BUILTINS})


class Unchangeable:
    """
    A function that a pickle can call and not change. A pickle may set attributes of whatever it names, and those of a
    function, such as the defaults of its arguments, would stay changed for the rest of the process.

    Args:
        function (Callable): The function.
    """

    __slots__ = ("_function",)

    def __init__(self, function: Callable) -> None:
        object.__setattr__(self, "_function", function)

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("it changes a function")


def numpy_scalar_globals() -> Dict[Tuple[str, str], Callable]:
    """
    Return the globals that a pickled numpy scalar asks for, e.g. a learning rate taken from ``numpy.linspace``.

    Returns:
        Dict[Tuple[str, str], Callable]: Constructors by (module, name), for numpy's old and new module names.
    """
    try:
        import numpy
    except ImportError:
        return {}
    import _codecs

    def scalar(dtype, data):
        # An object scalar is whatever the file says, so it is not a number.
        if dtype.hasobject:
            raise pickle.UnpicklingError("a numpy scalar of dtype {} is not a number".format(dtype))
        return numpy.frombuffer(data, dtype=dtype, count=1)[0]

    allowed: Dict[Tuple[str, str], Callable] = {("numpy", "dtype"): numpy.dtype, ("_codecs", "encode"): _codecs.encode}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        allowed[(module, "scalar")] = Unchangeable(scalar)
    for name in dir(getattr(numpy, "dtypes", None)):
        if name.endswith("DType"):
            allowed[("numpy.dtypes", name)] = getattr(numpy.dtypes, name)
    return allowed


_NUMPY = numpy_scalar_globals()


class StrictUnpickler(pickle.Unpickler):
    """
    An unpickler that calls nothing but constructors of plain data.

    Args:
        file (BinaryIO): What to read from.
        constructors (Dict[Tuple[str, str], Any], optional): More globals, by (module, name), that the file may ask
            for. Each must be safe to call with any arguments.
        resolve (Callable[[Any], Any], optional): Gives the object that a persistent id stands for.
    """

    def __init__(
        self,
        file: BinaryIO,
        constructors: Optional[Dict[Tuple[str, str], Any]] = None,
        resolve: Optional[Callable[[Any], Any]] = None,
    ) -> None:
        super().__init__(file)
        self._constructors = constructors or {}
        self._resolve = resolve

    def find_class(self, module: str, name: str) -> Any:
        key = (module, name)
        for allowed in (self._constructors, _CONTAINERS, _NUMPY):
            if key in allowed:
                return allowed[key]
        if module == "torch":
            value = getattr(torch, name, None)
            if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
                return value
        raise pickle.UnpicklingError("it refers to {}.{}, which is not plain data".format(module, name))

    def persistent_load(self, pid: Any) -> Any:
        if self._resolve is not None:
            return self._resolve(pid)
        raise pickle.UnpicklingError("it refers to an object outside of the pickle")


def _storage_from_bytes(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


_TENSOR_IN_PICKLE: Dict[Tuple[str, str], Callable] = {
    ("torch._utils", "_rebuild_tensor_v2"): Unchangeable(torch._utils._rebuild_tensor_v2),
    ("torch._utils", "_rebuild_parameter"): Unchangeable(torch._utils._rebuild_parameter),
    # The genuine function opens the bytes with torch.load's full pickle.
    ("torch.storage", "_load_from_bytes"): Unchangeable(_storage_from_bytes),
}


def loads(data: bytes) -> Any:
    """
    Unpickle bytes that hold plain data: numbers, strings, containers, tensors.

    Args:
        data (bytes): The pickle.

    Returns:
        Any: The object.

    Raises:
        pickle.UnpicklingError: If the pickle asks for anything else. Nothing that it names has run then.
    """
    return StrictUnpickler(io.BytesIO(data), _TENSOR_IN_PICKLE).load()
