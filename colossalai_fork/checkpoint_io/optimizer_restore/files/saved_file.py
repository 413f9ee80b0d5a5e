"""Open one checkpoint file without reading its tensors.

Three formats: torch's zip format (mapped into memory), torch's older format (has to be read), safetensors (mapped). The
tensors handed out alias the file: whoever keeps one must copy it.
"""

import io
import json
import os
import pickle
import re
import stat
import struct
import sys
import zipfile
from typing import Any, BinaryIO, Dict, Tuple

import torch

from .strict_pickle import StrictUnpickler, Unchangeable, loads

__all__ = ["UnreadableFileError", "require_regular_file", "read_torch_file", "read_safetensors_file"]


class UnreadableFileError(Exception):
    """A checkpoint file that cannot be opened as data. The message gives the reason, without the file's name."""


def require_regular_file(path: str) -> int:
    """
    Check that a path can be opened as data.

    Args:
        path (str): The file.

    Returns:
        int: Its size in bytes.

    Raises:
        UnreadableFileError: If it does not exist, is empty, or is a directory, pipe or device.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise UnreadableFileError("the file does not exist")
    except (OSError, ValueError) as error:
        raise UnreadableFileError("the file cannot be read: {}".format(error))
    # Opening a pipe waits for a writer, and a device can be endless.
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFileError("it is not a regular file")
    if status.st_size == 0:
        raise UnreadableFileError("the file is empty")
    return status.st_size


# ======================================
# torch files
# ======================================

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
}


class _NotPlain(Exception):
    """The file is one that only torch's own loader can judge."""


class _NotMappable(Exception):
    """The bytes of the file are not those of its tensors, or the file system does not map files."""


class _TorchZipReader:
    """
    Reads the pickle of a torch zip file into tensors that alias the mapped file.

    Args:
        file (BinaryIO): The file, open.
        path (str): Its path.
        size (int): Its size in bytes.

    Raises:
        zipfile.BadZipFile: If the file is not a whole zip archive.
        _NotPlain: If torch's own loader has to open it.
        _NotMappable: If torch's own loader has to read it into memory.
    """

    _LOCAL_HEADER = struct.Struct("<HH")
    _LOCAL_HEADER_LENGTHS = 26
    _LOCAL_HEADER_SIZE = 30

    def __init__(self, file: BinaryIO, path: str, size: int) -> None:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.NameToInfo if name.endswith("/data.pkl") and name.count("/") == 1]
            if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
                raise _NotMappable()
            # torch can be told to save without checksums, and writes zero in their place.
            if len(names) != 1 or archive.NameToInfo[names[0]].CRC == 0:
                raise _NotPlain()
            root = names[0][: -len("data.pkl")]
            byte_order = root + "byteorder"
            if byte_order in archive.NameToInfo and archive.read(byte_order) != sys.byteorder.encode():
                raise _NotPlain()
            self._infos = archive.NameToInfo
            self._prefix = root + "data/"
            self._pickle = archive.read(names[0])
            self._descriptor = file.fileno()
            try:
                # The mapping that tensors alias holds no file descriptor, so a checkpoint may have any number of shards.
                storage = torch.UntypedStorage.from_file(path, shared=False, nbytes=size)
            except (RuntimeError, UnicodeError):
                raise _NotMappable()
            self._bytes = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._storages: Dict[str, Tuple[torch.dtype, torch.Tensor]] = {}
            self.content = self._unpickle()
        del self._infos, self._pickle, self._storages

    def _unpickle(self) -> Any:
        constructors: Dict[Tuple[str, str], Any] = {("torch", name): dtype for name, dtype in _STORAGE_DTYPES.items()}
        constructors[("torch._utils", "_rebuild_tensor_v2")] = Unchangeable(self._tensor)
        try:
            return StrictUnpickler(io.BytesIO(self._pickle), constructors, self._storage).load()
        except pickle.UnpicklingError:
            raise _NotPlain()

    def _storage(self, pid: Any) -> Tuple[torch.dtype, torch.Tensor]:
        kind, dtype, key, _, numel = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise _NotPlain()
        if key not in self._storages:
            self._storages[key] = (dtype, self._record(key, dtype, numel))
        return self._storages[key]

    def _record(self, key: str, dtype: torch.dtype, numel: int) -> torch.Tensor:
        info = self._infos.get(self._prefix + key)
        if info is None:
            raise UnreadableFileError("the data of tensor {!r} is missing".format(key))
        lengths_at = info.header_offset + self._LOCAL_HEADER_LENGTHS
        name, extra = self._LOCAL_HEADER.unpack(os.pread(self._descriptor, self._LOCAL_HEADER.size, lengths_at))
        start = info.header_offset + self._LOCAL_HEADER_SIZE + name + extra
        end = start + info.file_size
        if numel < 0 or numel * dtype.itemsize > info.file_size or end > self._bytes.numel():
            raise UnreadableFileError("the data of tensor {!r} is cut short".format(key))
        if start % dtype.itemsize:
            raise _NotPlain()
        return self._bytes[start : start + numel * dtype.itemsize].view(dtype)

    @staticmethod
    def _tensor(storage, offset, size, stride, requires_grad, hooks, metadata=None) -> torch.Tensor:
        if metadata:
            raise _NotPlain()
        _, data = storage
        if len(size) == 1 and stride == (1,) and not offset and size[0] == data.numel():
            return data
        span = offset + 1
        for length, step in zip(size, stride):
            span += (length - 1) * step
            if length < 0 or step < 0:
                raise UnreadableFileError("a tensor has the impossible size {}, stride {}".format(size, stride))
        if 0 in size:
            return data.new_empty(size)
        if offset < 0 or span > data.numel():
            raise UnreadableFileError(
                "a tensor of size {} needs {} elements and its data has {}".format(tuple(size), span, data.numel())
            )
        return data.as_strided(size, stride, data.storage_offset() + offset)


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _looks_like_torch_file(file: BinaryIO) -> bool:
    file.seek(0)
    start = file.read(16)
    # Zip archives, and the magic number that torch's older format begins with, as pickled by protocol 2.
    return start.startswith(b"PK") or start[2:14] == pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)[2:14]


def _load_weights_only(file: BinaryIO, path: str, mapped: bool) -> Any:
    try:
        if mapped:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not _looks_like_torch_file(file):
            raise UnreadableFileError("it is not a torch file")
        reason = "it holds something other than tensors, numbers and containers, and opening it could run code"
        # The first line of torch's message is advice to run the code all the same.
        named = re.search(r"GLOBAL (\w+(\.\w+)*)", str(error))
        raise UnreadableFileError("{} ({})".format(reason, named.group(1) if named else _short(error)))
    except Exception as error:
        raise UnreadableFileError("it is not a whole torch file ({})".format(_short(error)))


def read_torch_file(path: str) -> Tuple[Any, bool]:
    """
    Open a file that ``torch.save`` wrote. Never runs what the file names.

    Args:
        path (str): The file.

    Returns:
        Tuple[Any, bool]: The object, on CPU, and whether its tensors alias the mapped file (True) or are held in
            memory (False: torch's format from before 1.6, compressed archives, files that cannot be mapped).

    Raises:
        UnreadableFileError: If there is no such file, or it is not whole, or holds more than plain data.
    """
    size = require_regular_file(path)
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                return _load_weights_only(file, path, mapped=False), False
            try:
                return _TorchZipReader(file, path, size).content, True
            except _NotPlain:
                return _load_weights_only(file, path, mapped=True), True
            except _NotMappable:
                return _load_weights_only(file, path, mapped=False), False
    except UnreadableFileError:
        raise
    except Exception as error:
        raise UnreadableFileError("it is not a whole torch file ({})".format(_short(error)))


# ======================================
# safetensors files
# ======================================


def read_safetensors_file(path: str) -> Dict[str, Any]:
    """
    Open a safetensors file that ColossalAI's asynchronous saving wrote.

    Args:
        path (str): The file.

    Returns:
        Dict[str, Any]: Its flat entries, ``state.<id>.<key>`` and ``param_groups``; tensors alias the mapped file,
            everything else is unpickled as plain data.

    Raises:
        UnreadableFileError: If there is no such file, or it is not whole, or holds more than plain data.
    """
    from safetensors import safe_open

    require_regular_file(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            entries = {key: file.get_tensor(key) for key in file.keys()}
        pickled = json.loads(metadata.get("non_tensor_keys", "[]"))
        if not isinstance(pickled, list):
            raise UnreadableFileError("its list of values that are not tensors is not a list")
    except UnreadableFileError:
        raise
    except Exception as error:
        raise UnreadableFileError("it is not a whole safetensors file ({})".format(_short(error)))
    for key in pickled:
        if key not in entries:
            raise UnreadableFileError("its metadata names {!r}, which it does not hold".format(key))
        try:
            entries[key] = loads(bytes(entries[key].tolist()))
        except Exception as error:
            raise UnreadableFileError("the value of {!r} is not plain data ({})".format(key, _short(error)))
    return entries
