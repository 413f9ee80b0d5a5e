"""Open a safetensors file that ColossalAI's asynchronous saving wrote, without reading its tensors."""

import json
from math import prod
from typing import Any, Dict, List, Tuple

import torch

from .pickled_tensors import TensorUnpickler
from .plain_pickle import PickleError, shown
from .saved_tensor import SavedTensor, contiguous_stride
from .sources import FileSource, UnreadableFileError
from .torch_file import Opened, storage_of_bytes
from .zip_directory import most_content

__all__ = ["open_safetensors_file"]

# What the library that writes such files allows.
_MAX_HEADER = 100_000_000
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
for _name, _torch_name in (
    ("F8_E4M3", "float8_e4m3fn"),
    ("F8_E5M2", "float8_e5m2"),
    ("U16", "uint16"),
    ("U32", "uint32"),
    ("U64", "uint64"),
):
    if hasattr(torch, _torch_name):
        _DTYPES[_name] = getattr(torch, _torch_name)


def open_safetensors_file(path: str) -> Opened:
    """
    Open a safetensors file.

    Args:
        path (str): The file.

    Returns:
        Opened: Its flat entries, ``state.<id>.<key>`` and ``param_groups``. What is no tensor was pickled, and is unpickled as
            plain data.

    Raises:
        UnreadableFileError: If there is no such file, or it is not whole, or holds more than plain data.
    """
    source = FileSource(path)
    try:
        entries, metadata = _read_header(source)
        for key in _pickled_keys(metadata):
            if key not in entries:
                raise UnreadableFileError("its metadata names {}, which it does not hold".format(shown(key)))
            entries[key] = _unpickled(key, entries[key])
        return Opened(entries, [source])
    except BaseException:
        source.close()
        raise


def _damaged(why: str) -> UnreadableFileError:
    return UnreadableFileError("it is not a whole safetensors file ({})".format(why))


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _damaged("a name stands there twice")
    return found


def _read_header(source: FileSource) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    if source.size < 8:
        raise _damaged("it has no header")
    length = int.from_bytes(source.read_bytes(0, 8), "little")
    begin = 8 + length
    if length > _MAX_HEADER or begin > source.size:
        raise _damaged("its header is cut short, or too long")
    try:
        header = json.loads(source.read_bytes(8, length).decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _damaged("its header is not readable JSON: {}".format(shown(str(error))))
    if type(header) is not dict:
        raise _damaged("its header is no mapping")
    metadata = header.pop("__metadata__", {})
    if type(metadata) is not dict:
        raise _damaged("its metadata is no mapping")
    entries = {name: _tensor(source, begin, name, entry) for name, entry in header.items()}
    end = begin
    for entry in sorted(entries.values(), key=lambda each: (each.offset, each.nbytes())):
        if entry.offset != end:
            raise _damaged("its tensors overlap, or leave a gap")
        end += entry.nbytes()
    if end != source.size:
        raise _damaged("its tensors end at byte {} of {}".format(end, source.size))
    return entries, metadata


def _tensor(source: FileSource, begin: int, name: str, entry: Any) -> SavedTensor:
    found = entry if type(entry) is dict else {}
    dtype, shape, place = found.get("dtype"), found.get("shape"), found.get("data_offsets")
    sizes = (shape if type(shape) is list else [None]) + (place if type(place) is list else [None])
    # Larger numbers than any file has bytes.
    if any(type(size) is not int or not 0 <= size < 1 << 63 for size in sizes) or len(place) != 2 or len(shape) > 64:
        raise _damaged("the entry of {} is malformed".format(shown(name)))
    if dtype not in _DTYPES:
        raise _damaged("the dtype of {} is not known".format(shown(name)))
    if prod(shape) * _DTYPES[dtype].itemsize != place[1] - place[0] or begin + place[1] > source.size:
        raise _damaged("the data of {} is cut short, or too long".format(shown(name)))
    return SavedTensor(source, begin + place[0], _DTYPES[dtype], tuple(shape), contiguous_stride(shape))


def _pickled_keys(metadata: Dict[str, Any]) -> List[str]:
    try:
        keys = json.loads(metadata.get("non_tensor_keys", "[]"))
    except (TypeError, ValueError, RecursionError) as error:
        raise _damaged("its list of values that are not tensors is not readable JSON: {}".format(shown(str(error))))
    if type(keys) is not list or not all(type(key) is str for key in keys):
        raise _damaged("its list of values that are not tensors is not a list of names")
    return keys


def _no_persistent_id(*arguments: Any) -> Any:
    raise PickleError("it refers to an object outside of the pickle")


def _unpickled(key: str, entry: Any) -> Any:
    if type(entry) is not SavedTensor or entry.dtype != torch.uint8 or entry.dim() != 1:
        raise _damaged("the value of {} is not pickled once".format(shown(key)))
    data = entry.source.read_bytes(entry.offset, entry.numel())
    try:
        return TensorUnpickler(_no_persistent_id, most_content(len(data)), storage_of=storage_of_bytes).load(data)[0]
    except UnreadableFileError as error:
        raise UnreadableFileError("the value of {} is not plain data ({})".format(shown(key), error))
