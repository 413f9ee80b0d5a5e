"""The directory of a zip archive that torch.save wrote, read strictly.

An archive can say the same thing in several places, and programs differ in which they believe. Here all of them must
agree, records may not overlap, and only the records that ``torch.save`` writes are allowed. (The standard library's reader
is more tolerant, and takes several times as long for the many records of a checkpoint of small tensors.)
"""

import operator
import re
import struct
import zlib
from typing import Any, Dict, List, Tuple

from .sources import MemorySource, UnreadableFileError, Window

__all__ = ["Record", "read_directory", "most_content"]

_END = struct.Struct("<4s4H2LH")
_END_64_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
# Signature, versions, flags, method, time and date, checksum, two sizes, three lengths, disk, attributes, offset.
_ENTRY = struct.Struct("<4s4x2H4x3L3HH6xL")
_LOCAL = struct.Struct("<4s2x2H4x3L2H")
_DEFLATED = 8
_STREAMED = 0x8  # sizes and checksum follow the data
_UTF8 = 0x800
_USUAL_FLAGS = _STREAMED | _UTF8
_OTHER_FLAGS = 0xFFFF & ~(_STREAMED | _UTF8 | 0x6)  # bits 1 and 2 tell how hard a compressor tried
_OFFSET = operator.itemgetter(6)
# Local headers by the length of the name, as torch.save writes them: sizes and checksum are elsewhere.
_USUAL_HEADERS = [b"PK\x03\x04\x00\x00" + struct.pack("<H18xH", _USUAL_FLAGS, length) for length in range(256)]
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF

# Behind the folder's name. Hidden records hold facts about the archive, which nothing here depends on.
_NAMES = re.compile(rb"(data/[A-Za-z0-9_.-]+|data\.pkl|byteorder|version|\.data/[a-z_]+|\.[a-z_]+|data/|\.data/|)")


# Where the bytes of a record lie: source, start, size; and their checksum.
Record = Tuple[Any, int, int, int]


def most_content(size: int) -> int:
    """
    Bound the memory that the content of a file may take.

    Args:
        size (int): The size of a file in bytes.

    Returns:
        int: How many bytes its content may take in memory. More than the file has itself only comes of compression, of
            tensors that repeat one element, and of tensors that share their data.
    """
    return 4 * size + (64 << 20)


def _damaged(what: str) -> UnreadableFileError:
    return UnreadableFileError("it is not a whole torch file ({})".format(what))


def read_directory(source: Any) -> Dict[bytes, Record]:
    """
    Find the records of a torch zip file.

    Args:
        source (Any): The file.

    Returns:
        Dict[bytes, Record]: The records by their names without the folder that all of them are in, e.g. ``data/0``.

    Raises:
        UnreadableFileError: If it is not a whole archive, or not one as ``torch.save`` writes it.
    """
    offset, size, count = _find_directory(source)
    entries = _read_entries(source.read_bytes(offset, size), count)
    return _locate(source, entries, offset)


def _find_directory(source: Any) -> Tuple[int, int, int]:
    if source.size < _END.size:
        raise _damaged("it is cut short")
    end_at = source.size - _END.size
    end = _END.unpack(source.read_bytes(end_at, _END.size))
    signature, disk, first_disk, count_here, count, size, offset, comment = end
    if signature != b"PK\x05\x06" or comment:
        raise _damaged("it does not end as a zip archive does")
    if disk or first_disk or count_here != count:
        raise _damaged("it is a part of an archive")
    locator_at = end_at - _END_64_LOCATOR.size
    if locator_at >= 0:
        locator = source.read_bytes(locator_at, _END_64_LOCATOR.size)
        if locator.startswith(b"PK\x06\x07"):
            end_at, wide = _read_end_64(source, locator, locator_at)
            # The narrow fields repeat the wide ones, or are full.
            narrow = ((count, _FULL_16), (size, _FULL_32), (offset, _FULL_32))
            if any(value not in (full, wider) for (value, full), wider in zip(narrow, wide)):
                raise _damaged("its ends contradict each other")
            count, size, offset = wide
    if offset + size != end_at:
        raise _damaged("its directory is not where its end says")
    if count * _ENTRY.size > size:
        raise _damaged("its directory is cut short")
    return offset, size, count


def _read_end_64(source: Any, locator: bytes, locator_at: int) -> Tuple[int, Tuple[int, int, int]]:
    _, disk, at, disks = _END_64_LOCATOR.unpack(locator)
    if disk or disks > 1 or at + _END_64.size != locator_at:
        raise _damaged("its wide end is not where it belongs")
    end = _END_64.unpack(source.read_bytes(at, _END_64.size))
    signature, length, _, _, disk, first_disk, count_here, count, size, offset = end
    if signature != b"PK\x06\x06" or length != _END_64.size - 12 or disk or first_disk or count_here != count:
        raise _damaged("its wide end is damaged")
    return at, (count, size, offset)


# Name, flags, method, checksum, compressed size, size, where its local header begins.
_Entry = Tuple[bytes, int, int, int, int, int, int]


def _read_entries(directory: bytes, count: int) -> List[_Entry]:
    entries: List[_Entry] = []
    at = 0
    unpack, fixed, total = _ENTRY.unpack_from, _ENTRY.size, len(directory)
    while at < total:
        if at + fixed > total:
            raise _damaged("its directory is cut short")
        (signature, flags, method, checksum, packed, size, name_length, extra, comment, disk, offset) = unpack(
            directory, at
        )
        if signature != b"PK\x01\x02" or comment or disk or flags & _OTHER_FLAGS:
            raise _damaged("its directory is damaged")
        at += fixed
        name = directory[at : at + name_length]
        at += name_length
        if extra:
            packed, size, offset = _widened(directory[at : at + extra], packed, size, offset)
            at += extra
        entries.append((name, flags, method, checksum, packed, size, offset))
    if at != total or len(entries) != count:
        raise _damaged("its directory is cut short")
    return entries


def _widened(extra: bytes, packed: int, size: int, offset: int) -> Tuple[int, int, int]:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            wanted = [value for value in (size, packed, offset) if value == _FULL_32]
            if length < 8 * len(wanted) or at + 4 + length > len(extra):
                raise _damaged("the size of a record is damaged")
            wide = iter(struct.unpack_from("<{}Q".format(len(wanted)), extra, at + 4))
            size, packed, offset = (next(wide) if value == _FULL_32 else value for value in (size, packed, offset))
        at += 4 + length
    return packed, size, offset


def _locate(source: Any, entries: List[_Entry], end: int) -> Dict[bytes, Record]:
    if not entries:
        raise _damaged("it is an empty archive")
    root = entries[0][0].partition(b"/")[0] + b"/"
    entries.sort(key=_OFFSET)
    _check_names([entry[0] for entry in entries], root)
    records: Dict[bytes, Record] = {}
    window = Window(source)
    at_most = most_content(source.size)
    data, shift, behind_data, skip = b"", 0, 0, len(root)
    for entry in entries:
        name, flags, method, checksum, packed, size, offset = entry
        if offset < behind_data or (offset and not behind_data):
            raise _damaged("its records overlap, or do not begin the file")
        at = offset - shift
        length = len(name)
        if at < 0 or at + 30 + length > len(data):
            at = window.at(offset, 30 + length)
            data, shift = window.data, window.start
        # What is nearly always so, told from the rest in as few steps as can be.
        usual = flags == _USUAL_FLAGS and not method and length < 256 and data.startswith(_USUAL_HEADERS[length], at)
        if not (usual or _repeats(data, at, entry)) or not data.startswith(name, at + 30):
            raise _damaged("a record is not what the directory says")
        begin = offset + 30 + length + data[at + 28] + 256 * data[at + 29]
        behind_data = begin + packed
        if not method and packed == size and (not size or name[-1] != 47):
            records[name[skip:]] = (source, begin, size, checksum)
        else:
            at_most -= size
            records[name[skip:]] = _unpacked(source, begin, entry, at_most)
    if behind_data > end:
        raise _damaged("a record is cut short")
    if len(records) != len(entries):
        raise _damaged("it holds a record twice")
    return records


def _check_names(names: List[bytes], root: bytes) -> None:
    usual = rb"(?:%bdata/[0-9]+\n|%b(?:data\.pkl|byteorder|version|(?:\.data/|\.)[a-z_]+)\n)*" % (
        (re.escape(root),) * 2
    )
    if re.fullmatch(usual, b"\n".join(names) + b"\n") and b"\n" not in root:
        return
    for name in names:
        if not name.startswith(root) or not _NAMES.fullmatch(name[len(root) :]):
            raise _refused(name, root)


def _repeats(data: bytes, at: int, entry: _Entry) -> bool:
    name, flags, method, checksum, packed, size, _ = entry
    if len(data) - at < _LOCAL.size + len(name):
        raise _damaged("it is cut short")
    header = _LOCAL.unpack_from(data, at)
    if header[0] != b"PK\x03\x04" or header[1] & _OTHER_FLAGS or header[2] != method or header[6] != len(name):
        return False
    if header[1] & _STREAMED:
        return bool(flags & _STREAMED)
    wide = header[4] == header[5] == _FULL_32
    return header[3] == checksum and (wide or header[4:6] == (packed, size))


def _refused(name: bytes, root: bytes) -> UnreadableFileError:
    if name == root + b"constants.pkl" or name.startswith(root + b"code/"):
        return UnreadableFileError("it is a TorchScript archive, which is a program and no checkpoint")
    shown = ascii(name[:60].decode("utf-8", "replace"))
    return UnreadableFileError("it is not a torch file: torch.save writes no record {}".format(shown))


def _unpacked(source: Any, start: int, entry: _Entry, at_most: int) -> Record:
    name, _, method, checksum, packed, size, _ = entry
    if size and name.endswith(b"/"):
        raise _damaged("a folder has content")
    if method != _DEFLATED or at_most < 0:
        raise _damaged("a record is packed in an unknown way, or unpacks to far more than the file has")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = unpacker.decompress(source.read_bytes(start, packed), size + 1)
    except zlib.error as error:
        raise _damaged("a record cannot be unpacked: {}".format(error))
    if len(data) != size or not unpacker.eof or (checksum and zlib.crc32(data) != checksum):
        raise _damaged("a record does not unpack to what the directory says")
    return MemorySource(data), 0, size, checksum
