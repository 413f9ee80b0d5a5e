"""Open a safetensors file that ColossalAI's asynchronous saving wrote.

Such a file holds tensors by name, and nothing else; what is no tensor is pickled into a tensor of bytes, and its name is in
the file's metadata. The header is checked as the safetensors library checks it, and its tensors are not read.
"""

import json
from math import prod
from typing import Any, Dict, List, Tuple

import torch

from .opened import Opened, collector_paused
from .pickled_tensors import TensorUnpickler
from .plain_pickle import PickleError, shown
from .saved_tensor import SavedTensor, contiguous_stride
from .sources import FileSource, UnreadableFileError
from .torch_file import storage_of_bytes
from .zip_directory import most_content

__all__ = ["open_safetensors_file"]

_LONGEST_HEADER = 100_000_000
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
for _name, _dtype in {
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}.items():
    if hasattr(torch, _dtype):
        _DTYPES[_name] = getattr(torch, _dtype)


def _damaged(what: str) -> UnreadableFileError:
    return UnreadableFileError("it is not a whole safetensors file ({})".format(what))


@collector_paused()
def open_safetensors_file(path: str) -> Opened:
    """
    Open a safetensors file. Never runs what the file names.

    Args:
        path (str): The file.

    Returns:
        Opened: Its flat entries, ``state.<id>.<key>`` and ``param_groups``.

    Raises:
        UnreadableFileError: If there is no such file, or it is not whole, or holds more than plain data.
    """
    source = FileSource(path)
    try:
        header, begin = _read_header(source)
        metadata = header.pop("__metadata__", {})
        entries = _entries(source, header, begin)
        for name in _names_of_pickles(metadata, entries):
            entries[name] = _unpickled(name, entries[name])
        return Opened(entries, [source])
    except BaseException:
        source.close()
        raise


def _read_header(source: FileSource) -> Tuple[Dict[str, Any], int]:
    if source.size < 8:
        raise _damaged("it is cut short")
    length = int.from_bytes(source.read_bytes(0, 8), "little")
    if length > _LONGEST_HEADER or 8 + length > source.size:
        raise _damaged("its header is cut short")
    text = source.read_bytes(8, length)
    if not text.startswith(b"{"):
        raise _damaged("its header does not begin as it should")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise _damaged("its header is not readable: {}".format(shown(str(error))))
    return header, 8 + length


def _without_duplicates(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it holds a name twice")
    return found


def _entries(source: FileSource, header: Dict[str, Any], begin: int) -> Dict[str, Any]:
    entries: Dict[str, Any] = {}
    ranges = []
    for name, described in header.items():
        if type(described) is not dict or set(described) != {"dtype", "shape", "data_offsets"}:
            raise _damaged("the tensor {} is described in a damaged way".format(shown(name)))
        shape, offsets, kind = described["shape"], described["data_offsets"], described["dtype"]
        if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1]):
            raise _damaged("the tensor {} has an impossible size".format(shown(name)))
        dtype = _DTYPES.get(kind) if type(kind) is str else None
        if dtype is None:
            raise UnreadableFileError("the tensor {} is of the unknown kind {}".format(shown(name), shown(kind)))
        if prod(shape) * dtype.itemsize != offsets[1] - offsets[0]:
            raise _damaged("the tensor {} does not have as much data as its shape needs".format(shown(name)))
        ranges.append((offsets[0], offsets[1]))
        entries[name] = SavedTensor(source, begin + offsets[0], dtype, tuple(shape), contiguous_stride(shape))
    end = 0
    for start, stop in sorted(ranges):
        if start != end:
            raise _damaged("its tensors overlap, or leave gaps")
        end = stop
    if begin + end != source.size:
        raise _damaged("it is cut short, or something follows its tensors")
    return entries


def _are_sizes(numbers: Any) -> bool:
    return type(numbers) is list and len(numbers) <= 64 and all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)


def _names_of_pickles(metadata: Any, entries: Dict[str, Any]) -> List[str]:
    if type(metadata) is not dict or not all(type(value) is str for value in metadata.values()):
        raise _damaged("its metadata are not texts")
    try:
        names = json.loads(metadata.get("non_tensor_keys", "[]"))
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(
            "its list of values that are not tensors is not readable: {}".format(shown(str(error)))
        )
    if type(names) is not list or not all(type(name) is str for name in names):
        raise UnreadableFileError("its list of values that are not tensors is not a list of names")
    for name in names:
        if name not in entries:
            raise UnreadableFileError("its metadata names {}, which it does not hold".format(shown(name)))
    return names


def _unpickled(name: str, tensor: SavedTensor) -> Any:
    if type(tensor) is not SavedTensor:
        raise UnreadableFileError("its metadata names {} twice".format(shown(name)))
    if tensor.dtype != torch.uint8 or tensor.dim() != 1:
        raise UnreadableFileError("the value of {} is not pickled into bytes".format(shown(name)))
    data = tensor.source.read_bytes(tensor.offset, tensor.nbytes())
    tensors = TensorUnpickler(_no_data, most_content(len(data)), storage_of=storage_of_bytes)
    try:
        content, end = tensors.load(data)
    except UnreadableFileError as error:
        raise UnreadableFileError("the value of {}: {}".format(shown(name), error))
    if end != len(data):
        raise UnreadableFileError("the value of {}: something follows the pickle".format(shown(name)))
    return content


def _no_data(key: str, kind: Any, numel: int) -> Any:
    raise PickleError("it refers to an object outside of itself")
