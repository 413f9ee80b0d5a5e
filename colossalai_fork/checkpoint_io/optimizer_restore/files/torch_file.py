"""Open a file that torch.save wrote, without reading its tensors and without running what it names.

What is not one of torch's two formats is refused before any function of torch sees it: TorchScript archives are programs,
and tar archives name the files that they unpack to.
"""

import io
import os
import re
import sys
import warnings
import zlib
from typing import Any, Dict, Optional, Tuple

import torch

from .opened import Opened, collector_paused
from .pickled_tensors import SavedStorage, StorageKind, TensorUnpickler
from .plain_pickle import EndOfPickle, LeftOut, PickleError, shown
from .sources import FileSource, MemorySource, UnreadableFileError, Window
from .tensor_shortcut import TensorShortcut
from .zip_directory import Record, most_content, read_directory

__all__ = ["open_torch_file", "storage_of_bytes"]

_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_START = b"\x80\x02\x8a\x0a" + _MAGIC.to_bytes(10, "little") + b"."
_LEGACY_PROTOCOL = 1001


@collector_paused()
def open_torch_file(path: str) -> Opened:
    """
    Open a file that ``torch.save`` wrote. Never runs what the file names.

    Args:
        path (str): The file.

    Returns:
        Opened: Its content.

    Raises:
        UnreadableFileError: If there is no such file, or it is not whole, or holds more than plain data.
    """
    source = FileSource(path)
    try:
        start = source.read_bytes(0, min(source.size, len(_LEGACY_START)))
        if start.startswith(b"PK\x03\x04"):
            content, tensors = _open_zip(source)
        elif start == _LEGACY_START:
            content, tensors = _open_legacy(source)
        else:
            raise UnreadableFileError("it is not a torch file")
        if not tensors.falls_back:
            return Opened(content, [source])
        content = _load_by_torch(source, start != _LEGACY_START)
        return Opened(content, [source], True)
    except BaseException:
        source.close()
        raise


# ======================================
# torch's format
# ======================================


def _open_zip(source: FileSource) -> Tuple[Any, TensorUnpickler]:
    records = read_directory(source)
    if b"data.pkl" not in records or not {b"version", b".data/version"} & set(records):
        raise UnreadableFileError("it is not a torch file: it has no record 'data.pkl' or 'version'")
    for name, form in _FACTS.items():
        if name in records and (records[name][2] > 64 or not re.fullmatch(form, _whole_record(records, name))):
            raise UnreadableFileError("it is damaged: its record {!r} is".format(name.decode()))
    data = _whole_record(records, b"data.pkl")
    try:
        tensors = _tensors_of_zip(records, source.size)
        content, _ = tensors.load(data, shortcut=TensorShortcut(tensors, records))
    except LeftOut:
        tensors = _tensors_of_zip(records, source.size)
        content, _ = tensors.load(data)
    if b"byteorder" in records and _whole_record(records, b"byteorder") != sys.byteorder.encode():
        tensors.falls_back = True
    return content, tensors


# What torch says about a file beside its content, and expects there.
_FACTS = {
    b"version": rb"([1-9]|10)\n?",
    b"byteorder": rb"little|big",
    b".format_version": rb"[0-9]{1,9}",
    b".storage_alignment": rb"[0-9]{1,9}",
    b".data/serialization_id": rb"[ -~]*",
}


def _whole_record(records: Dict[bytes, Record], name: bytes) -> bytes:
    held, start, size, checksum = records[name]
    data = held.read_bytes(start, size)
    # Torch can be told to save without checksums, and writes zero in their place.
    if checksum and zlib.crc32(data) != checksum:
        raise UnreadableFileError("it is damaged: the checksum of its record {!r} is not right".format(name.decode()))
    return data


def _tensors_of_zip(records: Dict[bytes, Record], size: int) -> TensorUnpickler:
    def locate(key: str, kind: StorageKind, numel: int) -> Tuple[Any, int]:
        record = records.get(b"data/" + key.encode("utf-8", "surrogatepass"))
        if record is None:
            raise PickleError("the data of tensor {} is missing".format(shown(key)))
        # The bytes that a tensor of wider elements is a view of need not be a multiple of its elements.
        if kind.dtype is not None and not 0 <= record[2] - numel * kind.dtype.itemsize < kind.dtype.itemsize:
            raise PickleError("the data of tensor {} is cut short, or too long".format(shown(key)))
        return record[0], record[1]

    return TensorUnpickler(locate, most_content(size), may_fall_back=True)


# ======================================
# torch's format from before version 1.6
# ======================================


def _open_legacy(source: Any) -> Tuple[Any, TensorUnpickler]:
    length = min(source.size, 1 << 20)
    while True:
        try:
            return _LegacyReader(source, source.read_bytes(0, length)).open(isinstance(source, FileSource))
        except EndOfPickle:
            if length == source.size:
                raise
            length = min(source.size, 4 * length)


class _LegacyReader:
    """
    Reads a file that is a row of pickles (a magic number, a protocol, facts about the machine, the object, the keys of the
    data) with the data behind them, in the order of the keys.

    Args:
        source (Any): The file.
        data (bytes): Its beginning.
    """

    def __init__(self, source: Any, data: bytes) -> None:
        self._source = source
        self._data = data
        self._lengths: Dict[str, Tuple[StorageKind, int]] = {}
        self._starts: Dict[str, int] = {}

    def open(self, may_fall_back: bool, root_kind: Optional[type] = None) -> Tuple[Any, TensorUnpickler]:
        """Return the content and what has read it, or raise UnreadableFileError."""
        tensors = self._tensors(may_fall_back)
        magic, at = tensors.load(self._data)
        protocol, at = tensors.load(self._data, at)
        if (magic, protocol) != (_MAGIC, _LEGACY_PROTOCOL):
            raise UnreadableFileError("it is not a torch file")
        system, at = tensors.load(self._data, at)
        if type(system) is not dict or system.get("little_endian") is not (sys.byteorder == "little"):
            raise UnreadableFileError("it was written by a machine with another order of bytes")
        _, keys_at = tensors.load(self._data, at, root_kind=root_kind)
        keys, begin = tensors.load(self._data, keys_at)
        self._find_starts(keys, begin)
        # Now that it is known where the data lies.
        tensors = self._tensors(may_fall_back)
        return tensors.load(self._data, at, root_kind=root_kind)[0], tensors

    def _tensors(self, may_fall_back: bool) -> TensorUnpickler:
        return TensorUnpickler(self._locate, most_content(self._source.size), may_fall_back, id_length=6)

    def _locate(self, key: str, kind: StorageKind, numel: int) -> Tuple[Any, int]:
        if kind.dtype is None:
            raise PickleError("it holds a quantised tensor")
        self._lengths[key] = (kind, numel)
        return self._source, self._starts.get(key, 0)

    def _find_starts(self, keys: Any, at: int) -> None:
        if type(keys) is not list or set(map(type, keys)) - {str} or sorted(keys) != sorted(self._lengths):
            raise UnreadableFileError("it is not a whole torch file (its list of data is damaged)")
        window = Window(self._source)
        for key in keys:
            kind, numel = self._lengths[key]
            begin = window.at(at, 8)
            self._starts[key] = at + 8
            length_at = at
            at += 8 + numel * kind.dtype.itemsize
            if window.data[begin : begin + 8] != numel.to_bytes(8, "little") or at > self._source.size:
                text = "the data of tensor {} is cut short, or too long (at byte {})"
                raise UnreadableFileError(text.format(shown(key), length_at))
        if at != self._source.size:
            raise UnreadableFileError("it is not a whole torch file (something follows its data)")


def storage_of_bytes(data: bytes) -> SavedStorage:
    """
    Open a storage that lies in a pickle as bytes.

    Args:
        data (bytes): A file of torch's older format that holds nothing but the data of one tensor. Tensors pickled by other
            means than ``torch.save`` carry one.

    Returns:
        SavedStorage: The data.

    Raises:
        UnreadableFileError: If the bytes are anything else.
    """
    if not data.startswith(_LEGACY_START):
        raise PickleError("it holds a tensor whose data is not in torch's format")
    content, _ = _LegacyReader(MemorySource(data), data).open(False, SavedStorage)
    if type(content) is not SavedStorage:
        raise PickleError("it holds a tensor without data")
    return content


def _load_by_torch(source: FileSource, is_zip: bool) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if is_zip:
                with os.fdopen(os.dup(source.descriptor()), "rb") as file:
                    file.seek(0)
                    content = torch.load(file, map_location="cpu", weights_only=True)
            else:
                # From a file, torch would first try whether it is a tar archive, too.
                data = io.BytesIO(source.read_bytes(0, source.size))
                content = torch.load(data, map_location="cpu", weights_only=True)
    except UnreadableFileError:
        raise
    except Exception as error:
        # The first line of torch's message is advice to run the code all the same.
        reason = re.search(r"error: *(\S.*)", str(error)) or re.search(r"(.+)", str(error))
        text = "torch cannot load it as data ({})"
        raise UnreadableFileError(text.format(shown(reason.group(1) if reason else type(error).__name__)))
    # What has been checked must be what has been loaded.
    source.check_unchanged()
    return content
