"""Tensors in pickles: made into :class:`SavedTensor`, and checked against the bytes that they claim to lie in."""

from math import prod
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

from .constructors import find_plain
from .plain_pickle import LEAVES, Global, Opaque, PickleError, PlainUnpickler, shown
from .saved_tensor import SavedTensor

__all__ = ["SavedStorage", "StorageKind", "TensorUnpickler", "allowed_by_user", "checked_layout"]

LEAVES.add(SavedTensor)

# What torch called the storages of each dtype before it had storages without one.
_STORAGE_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "UntypedStorage": torch.uint8,
}
_QUANTISED = ("QUInt8Storage", "QInt8Storage", "QInt32Storage", "QUInt4x2Storage", "QUInt2x4Storage")
_QUANTISERS = (
    "per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric per_channel_affine_float_qparams"
).split()

ON_META = "it is on the meta device, so it has no data"
QUANTISED = "it is quantised"


class SavedStorage:
    """
    A run of elements in a file, which tensors are views of.

    Args:
        dtype (Optional[torch.dtype]): The kind of its elements; None if they are quantised numbers.
        numel (int): The number of elements.
        source (Any): What holds the bytes, None if nothing does.
        start (int): Where they begin there.
        untyped (bool): Whether it is a run of bytes that may be read as elements of any kind.
    """

    __slots__ = ("dtype", "numel", "source", "start", "untyped")

    def __init__(self, dtype: Optional[torch.dtype], numel: int, source: Any, start: int, untyped: bool) -> None:
        self.dtype = dtype
        self.numel = numel
        self.source = source
        self.start = start
        self.untyped = untyped


class StorageKind:
    """A kind of storage that a pickle may name: of a dtype (None: of quantised numbers), or of bytes."""

    __slots__ = ("dtype", "untyped")

    def __init__(self, dtype: Optional[torch.dtype], untyped: bool = False) -> None:
        self.dtype = dtype
        self.untyped = untyped


_KINDS = {name: StorageKind(dtype, name == "UntypedStorage") for name, dtype in _STORAGE_DTYPES.items()}
_KINDS.update({name: StorageKind(None) for name in _QUANTISED})


def allowed_by_user(name: str) -> Any:
    """
    Look a name up in torch's list of safe globals.

    Args:
        name (str): A module and a name in it.

    Returns:
        Any: The class or function that the user has put on torch's list of safe globals under that name, or None.
    """
    listed = getattr(torch.serialization, "get_safe_globals", list)()
    for item in listed:
        known, path = item if isinstance(item, tuple) else (item, None)
        if path is None:
            path = "{}.{}".format(getattr(known, "__module__", ""), getattr(known, "__qualname__", ""))
        if path == name:
            return known
    return None


class TensorUnpickler:
    """
    Reads the pickles of one file, or of one value in a file, with their tensors.

    Args:
        locate (Callable): Gives the source, start and size in bytes of the data that a key names, and for which dtype and
            number of elements; raises PickleError if there is none.
        room (int): How many bytes the tensors may have when they are copied.
        may_fall_back (bool, optional): Whether the file may hold what only torch can make. Then :attr:`falls_back` says so.
        storage_of (Callable[[bytes], SavedStorage], optional): Gives the storage that is in the bytes of a file of torch's
            older format.
        id_length (int, optional): How many parts a reference to data has. Torch's older format adds what part of another
            storage it is.
    """

    def __init__(
        self,
        locate: Callable[[Any, StorageKind, int], Tuple[Any, int]],
        room: int,
        may_fall_back: bool = False,
        storage_of: Optional[Callable[[bytes], SavedStorage]] = None,
        id_length: int = 5,
    ) -> None:
        self._locate = locate
        self._room = room
        self._storage_of = storage_of
        self._id_length = id_length
        self._may_fall_back = may_fall_back
        self._storages: Dict[Any, Tuple[StorageKind, SavedStorage]] = {}
        self.falls_back = False
        # What makes ordinary tensors.
        self.maker = Global("torch._utils._rebuild_tensor_v2", self._tensor)

    def load(
        self, data: bytes, position: int = 0, shortcut: Any = None, root_kind: Optional[type] = None
    ) -> Tuple[Any, int]:
        """
        Build the plain data and tensors of a pickle.

        Args:
            data (bytes): What holds a pickle.
            position (int, optional): Where it begins.
            shortcut (Any, optional): See :class:`PlainUnpickler`.
            root_kind (type, optional): See :class:`PlainUnpickler`.

        Returns:
            Tuple[Any, int]: The content, and where the pickle ends.

        Raises:
            PickleError: If the pickle is damaged, or holds more than plain data and tensors.
        """
        # A pickle that turns out to be cut short may be read again, with more of the file.
        room = self._room
        unpickler = PlainUnpickler(data, self._find, self._resolve, position, shortcut, root_kind)
        try:
            content = unpickler.load()
        except BaseException:
            self._room = room
            raise
        return content, unpickler.position

    # ======================================
    # names and storages
    # ======================================

    def _find(self, module: str, name: str) -> Any:
        # Protocols below 3 use Python 2's names.
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        found = find_plain(module, name)
        if found is not None:
            return found
        if module in ("torch", "torch.storage", "torch.cuda"):
            if name in _KINDS:
                return _KINDS[name]
            if name == "_load_from_bytes" and self._storage_of is not None:
                return Global("torch.storage._load_from_bytes", self._load_from_bytes)
            if name in _QUANTISERS:
                return "torch." + name
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self.maker
        method = _REBUILDERS.get((module, name))
        if method is not None:
            return Global(module + "." + name, getattr(self, method))
        return self._not_plain(module + "." + name)

    def _not_plain(self, name: str) -> Any:
        known = allowed_by_user(name)
        if known is None and name not in _SPARSE:
            text = (
                "it holds something other than tensors, numbers and containers, and opening it could run code ({0}). If you "
                "trust it, allow it by torch.serialization.add_safe_globals([{0}])"
            )
            raise PickleError(text.format(shown(name)))
        if not self._may_fall_back:
            raise PickleError("it holds {}, which only a file written by torch.save may".format(shown(name)))
        self.falls_back = True
        return Opaque(name, [], isinstance(known, type) and issubclass(known, (dict, list)))

    def _resolve(self, pid: Any) -> SavedStorage:
        # What torch's older format adds is None if the data is no part of other data.
        if type(pid) is not tuple or len(pid) != self._id_length or pid[0] != "storage" or pid[5:] not in ((), (None,)):
            raise PickleError("it refers to something that is not the data of a tensor")
        _, kind, key, location, numel = pid[:5]
        if type(kind) is not StorageKind or type(key) is not str or type(location) is not str:
            raise PickleError("the data of a tensor is described in a damaged way")
        if type(numel) is not int or not 0 <= numel < 1 << 62:
            raise PickleError("the data of tensor {} has an impossible length".format(shown(key)))
        known = self._storages.get(key)
        if known is not None:
            if known[0] is not kind or known[1].numel != numel:
                raise PickleError("the data of tensor {} is described in two ways".format(shown(key)))
            return known[1]
        source, start = (None, 0) if location == "meta" else self._locate(key, kind, numel)
        storage = SavedStorage(kind.dtype, numel, source, start, kind.untyped)
        self._storages[key] = (kind, storage)
        return storage

    def _load_from_bytes(self, it: PlainUnpickler, arguments: Tuple) -> SavedStorage:
        if len(arguments) != 1 or type(arguments[0]) is not bytes or self._storage_of is None:
            raise PickleError("it holds a tensor whose data is not bytes")
        it.spend(len(arguments[0]))
        return self._storage_of(arguments[0])

    # ======================================
    # tensors
    # ======================================

    def _tensor(self, it: PlainUnpickler, arguments: Tuple) -> Any:
        if not 6 <= len(arguments) <= 7:
            raise PickleError("it holds a damaged tensor")
        storage = arguments[0]
        if type(storage) is not SavedStorage:
            raise PickleError("it holds a tensor without data")
        return self._view(storage, storage.dtype, *arguments[1:])

    def _tensor_of_dtype(self, it: PlainUnpickler, arguments: Tuple) -> Any:
        if not 7 <= len(arguments) <= 8:
            raise PickleError("it holds a damaged tensor")
        storage, dtype = arguments[0], arguments[6]
        if type(storage) is not SavedStorage or type(dtype) is not torch.dtype or not storage.untyped:
            raise PickleError("it holds a tensor without data")
        return self._view(storage, dtype, *arguments[1:6], *arguments[7:])

    def _view(
        self,
        storage: SavedStorage,
        dtype: Optional[torch.dtype],
        offset: Any,
        size: Any,
        stride: Any,
        requires_grad: Any,
        hooks: Any,
        metadata: Any = None,
    ) -> Any:
        shape, stride = checked_layout(size, stride)
        if type(offset) is not int or not 0 <= offset < 1 << 62 or type(requires_grad) is not bool or hooks:
            raise PickleError("it holds a damaged tensor")
        if storage.source is None or dtype is None:
            return SavedTensor(None, 0, torch.uint8, shape, stride, QUANTISED if dtype is None else ON_META)
        held = storage.numel // (dtype.itemsize if storage.untyped else 1)
        if prod(shape):
            span = offset + 1 + sum((length - 1) * step for length, step in zip(shape, stride))
            if span > held:
                text = "a tensor of size {} and stride {} needs {} elements and its data has {}"
                raise PickleError(shown(text.format(shape, stride, span, held)))
        if metadata:
            # Such as a flag to conjugate complex numbers when they are read.
            if not self._may_fall_back or type(metadata) is not dict:
                raise PickleError("it holds a tensor that is stored in an unusual way")
            self.falls_back = True
        if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
            raise PickleError("it holds a tensor of integers that requires gradients")
        start = storage.start + offset * dtype.itemsize
        tensor = SavedTensor(storage.source, start, dtype, shape, stride, None, requires_grad)
        self.use(tensor.nbytes())
        return tensor

    def use(self, size: int) -> None:
        """
        Count the bytes of a tensor against what the file may hold.

        Args:
            size (int): The bytes that a copy of a tensor takes.

        Raises:
            PickleError: If copies of all tensors would take far more than the file.
        """
        self._room -= size
        if self._room < 0:
            raise PickleError("its tensors would take far more memory than the file has bytes")

    def _parameter(self, it: PlainUnpickler, arguments: Tuple) -> Any:
        if not 3 <= len(arguments) <= 4 or type(arguments[1]) is not bool or arguments[2]:
            raise PickleError("it holds a damaged parameter")
        tensor = arguments[0]
        if type(tensor) is Opaque:
            return Opaque("torch.nn.Parameter", list(arguments))
        if type(tensor) is not SavedTensor:
            raise PickleError("it holds a parameter without data")
        view = (tensor.source, tensor.offset, tensor.dtype, tensor.shape, tensor.stride, tensor.refusal)
        return SavedTensor(*view, arguments[1], True)

    def _tensor_of_type(self, it: PlainUnpickler, arguments: Tuple) -> Any:
        # A tensor with attributes, which are left out, or of a class of its own, which is torch's to make.
        if len(arguments) != 4 or type(arguments[2]) is not tuple:
            raise PickleError("it holds a damaged tensor")
        make, kind, inner, state = arguments
        if type(make) is Opaque or type(kind) is Opaque:
            return Opaque("torch._tensor._rebuild_from_type_v2", list(arguments))
        if type(make) is not Global or make.call == self._tensor_of_type:
            raise PickleError("it holds a damaged tensor")
        if type(kind) is not Global or kind.call != self._class_of_tensors:
            raise PickleError("it holds a tensor of an unknown class")
        return make.call(it, inner)

    def _meta_tensor(self, it: PlainUnpickler, arguments: Tuple) -> SavedTensor:
        if len(arguments) != 4 or type(arguments[0]) is not torch.dtype:
            raise PickleError("it holds a damaged tensor")
        return SavedTensor(None, 0, arguments[0], *checked_layout(*arguments[1:3]), ON_META)

    def _quantised_tensor(self, it: PlainUnpickler, arguments: Tuple) -> SavedTensor:
        if not 6 <= len(arguments) <= 8:
            raise PickleError("it holds a damaged tensor")
        return SavedTensor(None, 0, torch.uint8, *checked_layout(*arguments[2:4]), QUANTISED)

    def _class_of_tensors(self, it: PlainUnpickler, arguments: Tuple) -> Any:
        raise PickleError("it holds a tensor that is not saved as torch saves it")


def checked_layout(size: Any, stride: Any) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """
    Check the shape and the strides of a tensor.

    Args:
        size (Any): What a pickle gives for the size of a tensor.
        stride (Any): What it gives for the strides.

    Returns:
        Tuple[Tuple[int, ...], Tuple[int, ...]]: Both, checked.

    Raises:
        PickleError: If no tensor can have them.
    """
    for part in (size, stride):
        if type(part) not in (tuple, list, torch.Size) or len(part) > 64:
            raise PickleError("it holds a tensor of no size")
        if not all(type(number) is int and 0 <= number < 1 << 62 for number in part):
            raise PickleError(shown("a tensor has the impossible size {}, stride {}".format(size, stride)))
    if len(size) != len(stride) or prod(size) >= 1 << 62:
        raise PickleError(shown("a tensor has the impossible size {}, stride {}".format(size, stride)))
    return tuple(size), tuple(stride)


_REBUILDERS = {
    ("torch._utils", "_rebuild_tensor_v3"): "_tensor_of_dtype",
    ("torch._utils", "_rebuild_parameter"): "_parameter",
    ("torch._utils", "_rebuild_parameter_with_state"): "_parameter",
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): "_meta_tensor",
    ("torch._utils", "_rebuild_qtensor"): "_quantised_tensor",
    ("torch._tensor", "_rebuild_from_type_v2"): "_tensor_of_type",
    ("torch", "Tensor"): "_class_of_tensors",
    ("torch.nn.parameter", "Parameter"): "_class_of_tensors",
    ("torch.nn.parameter", "Buffer"): "_class_of_tensors",
}
_SPARSE = ("torch._utils._rebuild_sparse_tensor",)
