"""Read all bytes of a file, once and a bounded part at a time, and tell whether they are what was saved.

Zip archives have a checksum for each record, a manifest has one for each file. Who wants to look at the values of tensors
does so in the same pass.
"""

import hashlib
import os
import zlib
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..containers import leaves
from ..errors import Problem, shown
from .manifest import ANEW
from .saved_state import REWRITE, SavedShard, SavedState
from .saved_tensor import SavedTensor
from .sources import FileSource, UnreadableFileError
from .zip_directory import read_directory

__all__ = ["Contents", "altered_contents", "named_tensors", "read_contents", "verifies_contents", "VARIABLE"]

# The environment variable that asks for it, and what it has to be.
VARIABLE = ("COLOSSALAI_VERIFY_CHECKPOINT", "full")
# A multiple of the size of every kind of element.
_PIECE = 4 << 20
_AHEAD = 4 * _PIECE

Look = Callable[[Any, SavedTensor, memoryview], None]
Advance = Callable[[int], Any]


def verifies_contents() -> bool:
    """
    Tell whether loading has to compare contents.

    Returns:
        bool: Whether somebody has asked for loads that read all bytes of the files before anything changes.
    """
    name, value = VARIABLE
    return os.environ.get(name) == value


def altered_contents(
    saved: SavedState, shards: Sequence[SavedShard], look: Optional[Look] = None, advance: Advance = lambda count: None
) -> List[Problem]:
    """
    Read all of a checkpoint, and compare it with the checksums that there are.

    Args:
        saved (SavedState): The checkpoint.
        shards (Sequence[SavedShard]): Those of its shards that matter, opened. Index and groups always do.
        look (Callable[[Any, SavedTensor, memoryview], None], optional): See :func:`read_contents`. Names of tensors are
            parameter id and state key.
        advance (Callable[[int], Any], optional): Told how many bytes have been read since the last call.

    Returns:
        List[Problem]: What is not as it was saved.
    """
    problems: List[Problem] = []
    own = [(source, shard) for shard in shards for source in shard.sources]
    sources = {source.path: source for source in [*saved.sources, *(source for source, _ in own)]}
    unwanted = {shard.path for shard in saved.shards}.difference(shard.path for shard in shards)
    for path in (path for path in saved.files if path not in unwanted):
        tensors = [named for source, shard in own if source.path == path for named in named_tensors(source, shard)]
        try:
            source = sources.get(path) or FileSource(path)
        except UnreadableFileError:
            continue  # opening it has said so
        try:
            _compare(source, tensors, saved, look, advance, problems)
        except UnreadableFileError as error:
            problems.append(Problem(str(error), True, path, remedy=REWRITE))
        finally:
            source.rest() if path in sources else source.close()
    return problems


def named_tensors(source: FileSource, shard: SavedShard) -> Iterator[Tuple[Any, SavedTensor]]:
    """
    List the tensors of a file by name.

    Args:
        source (FileSource): A file.
        shard (SavedShard): States, opened.

    Yields:
        Tuple[Any, SavedTensor]: Parameter id and state key, and a tensor of theirs that lies in the file.
    """
    # What torch's own loader has made lies in memory, and would have to be made again.
    for param_id, state in shard.states().items() if shard.keep else ():
        for key, value in state.items() if isinstance(state, dict) else ((None, state),):
            for leaf in leaves(value):
                if isinstance(leaf, SavedTensor) and leaf.source is source:
                    yield (param_id, key), leaf


def _compare(
    source: FileSource, tensors: Any, saved: SavedState, look: Optional[Look], advance: Advance, problems: List[Problem]
) -> None:
    path = source.path
    manifest = saved.manifest
    record = None if manifest is None else manifest.records.get(manifest.name_of(path))
    found = read_contents(source, tensors, record is not None, look, advance)
    for name, held in found.damaged:
        text = "the bytes are not those that were saved: the checksum of record {!r} is not right".format(shown(name))
        for param_id, key in held or [(None, None)]:
            problems.append(Problem(text, True, path, param_id, key, remedy=REWRITE))
    if record is not None and found.sha256 != record.sha256:
        text = "the bytes are not those that the manifest was written for (SHA-256)"
        problems.append(Problem(text, True, path, None, None, record.sha256, found.sha256, ANEW))


class Contents(NamedTuple):
    """
    What reading all of a file has shown.

    Args:
        sha256 (Optional[str]): The digest of the file, if it was asked for.
        damaged (List[Tuple[str, List[Any]]]): Records whose checksum is not right, and the names of the tensors in them.
    """

    sha256: Optional[str]
    damaged: List[Tuple[str, List[Any]]]


class _Part:
    """A range of the file: a record, a tensor, or what lies between them."""

    __slots__ = ("start", "end", "name", "expected", "checksum", "tensors")

    def __init__(self, start: int, end: int, name: str = "", expected: int = 0) -> None:
        self.start = start
        self.end = end
        self.name = name
        self.expected = expected
        self.checksum = 0
        self.tensors: List[Tuple[Any, SavedTensor]] = []


def read_contents(
    source: FileSource,
    tensors: Sequence[Tuple[Any, SavedTensor]] = (),
    digest: bool = False,
    look: Optional[Look] = None,
    advance: Advance = lambda count: None,
) -> Contents:
    """
    Read all of a file.

    Args:
        source (FileSource): The file.
        tensors (Sequence[Tuple[Any, SavedTensor]]): The tensors that lie in it, and a name for each.
        digest (bool, optional): Whether to compute a digest of the file. Defaults to False.
        look (Callable[[Any, SavedTensor, memoryview], None], optional): Given a name, its tensor, and some of the elements
            that it covers in the file, gaps between them included. Called in the order of the file.
        advance (Callable[[int], Any], optional): Told how many bytes have been read since the last call.

    Returns:
        Contents: What that has shown.

    Raises:
        UnreadableFileError: If the file cannot be read to its end, or has been written to since it was opened.
    """
    parts = _parts(source, tensors)
    sha256 = hashlib.sha256() if digest else None
    # Checksums are computed without holding other threads up, and so is reading.
    with ThreadPoolExecutor(max_workers=3, thread_name_prefix="verify-checkpoint") as pool:
        pending: List[Any] = []
        for data, pieces in _read_pieces(source, parts, pool):
            for task in pending:
                task.result()
            pending = [] if sha256 is None else [pool.submit(sha256.update, data)]
            pending.append(pool.submit(_add_checksums, data, pieces))
            for part, start, end, at in pieces if look is not None else ():
                _look_at(part, start, data[at : at + end - start], look)
            advance(len(data))
        for task in pending:
            task.result()
    source.check_unchanged()
    damaged = [part for part in parts if part.expected and part.checksum != part.expected]
    return Contents(
        None if sha256 is None else sha256.hexdigest(),
        [(part.name, [name for name, _ in part.tensors]) for part in damaged],
    )


def _parts(source: FileSource, tensors: Sequence[Tuple[Any, SavedTensor]]) -> List[_Part]:
    found = sorted(((tensor.offset, _end_of(tensor), name, tensor) for name, tensor in tensors), key=_start_and_end)
    if source.read_bytes(0, min(4, source.size)) == b"PK\x03\x04":
        records = [
            (start, start + size, name.decode("ascii", "replace"), checksum)
            for name, (held, start, size, checksum) in read_directory(source).items()
            # What was compressed has been compared when it was unpacked.
            if held is source and size
        ]
        parts = [_Part(*record) for record in sorted(records)]
    else:
        parts = []
        for start, end, _, _ in found:
            if parts and start < parts[-1].end:
                parts[-1].end = max(parts[-1].end, end)
            elif end > start:
                parts.append(_Part(start, end))
    starts = [part.start for part in parts]
    for start, end, name, tensor in found:
        position = bisect_right(starts, start) - 1
        if end > start and position >= 0 and end <= parts[position].end:
            parts[position].tensors.append((name, tensor))
    return list(_with_gaps(parts, source.size))


def _end_of(tensor: SavedTensor) -> int:
    if not all(tensor.shape):
        return tensor.offset
    reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride))
    return tensor.offset + (reach + 1) * tensor.dtype.itemsize


def _start_and_end(found: Any) -> Tuple[int, int]:
    return found[:2]


def _with_gaps(parts: List[_Part], size: int) -> Iterator[_Part]:
    at = 0
    for part in parts:
        if at < part.start:
            yield _Part(at, part.start)
        yield part
        at = part.end
    if at < size:
        yield _Part(at, size)


# Of which part, from where to where in the file, and where in what was read.
_Piece = Tuple[_Part, int, int, int]


def _read_pieces(source: FileSource, parts: List[_Part], pool: Any) -> Iterator[Tuple[memoryview, List[_Piece]]]:
    # One is read while the one before is looked at, and somebody may still be at work on the one before that. Fresh memory
    # would cost more than what is done with it.
    buffers = [memoryview(bytearray(min(_PIECE, source.size))) for _ in range(3)]
    waiting = None
    for number, pieces in enumerate(_batches(parts)):
        start, end = pieces[0][1], pieces[-1][2]
        data = buffers[number % 3][: end - start]
        following = pool.submit(source.read_into, start, data), data, pieces
        source.advise(end, min(_AHEAD, source.size - end))
        if waiting is not None:
            waiting[0].result()
            yield waiting[1:]
        waiting = following
    if waiting is not None:
        waiting[0].result()
        yield waiting[1:]


def _batches(parts: List[_Part]) -> Iterator[List[_Piece]]:
    pieces: List[_Piece] = []
    held = 0
    for part in parts:
        # From the start of the part, so that no element is cut in two.
        for start in range(part.start, part.end, _PIECE):
            end = min(start + _PIECE, part.end)
            if pieces and held + end - start > _PIECE:
                yield pieces
                pieces, held = [], 0
            pieces.append((part, start, end, held))
            held += end - start
    if pieces:
        yield pieces


def _add_checksums(data: memoryview, pieces: List[_Piece]) -> None:
    for part, start, end, at in pieces:
        if part.expected:
            part.checksum = zlib.crc32(data[at : at + end - start], part.checksum)


def _look_at(part: _Part, start: int, data: memoryview, look: Callable[[Any, SavedTensor, memoryview], None]) -> None:
    for name, tensor in part.tensors:
        begin, end = max(tensor.offset - start, 0), min(_end_of(tensor) - start, len(data))
        if begin < end:
            look(name, tensor, data[begin:end])
