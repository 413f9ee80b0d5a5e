"""Read saved tensors into memory that belongs to whoever asked: exactly the bytes needed, by position, never mapped."""

import ctypes
import threading
from collections import defaultdict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import torch

from .saved_tensor import SavedTensor
from .sources import MAX_OPEN_FILES, FileSource, MemorySource, UnreadableFileError, require_regular_file

__all__ = [
    "FileSource",
    "MemorySource",
    "UnreadableFileError",
    "MAX_OPEN_FILES",
    "require_regular_file",
    "read",
    "read_ahead",
    "plain",
]

# Ranges with a smaller gap between them are read as one.
_PAGE = 4096
# What is read to be copied from, at most.
_STAGING = 4 << 20
# Smaller tensors are copied out of a common range; larger ones are read to where they stay.
_SMALL = 128 << 10
# Larger tensors are read by several threads.
_PIECE = 8 << 20


def read(views: Sequence[SavedTensor]) -> List[torch.Tensor]:
    """
    Read tensors. Each gets a storage of its own, exactly as large as it is.

    Args:
        views (Sequence[SavedTensor]): Descriptors of what to read.

    Returns:
        List[torch.Tensor]: The tensors, in order. Strides are those that ``torch.Tensor.clone`` would give.

    Raises:
        UnreadableFileError: If a file ends too early or cannot be read.
        ValueError: If there is nothing to read a tensor from, as its ``refusal`` says.
    """
    reading = _Reading(views)
    for job in reading.jobs:
        job()
    return reading.tensors()


def read_ahead(
    entries: Iterable[Tuple[Any, List[SavedTensor]]], threads: int = 2, bytes_ahead: int = 64 << 20
) -> Iterator[Tuple[Any, List[torch.Tensor]]]:
    """
    Read the tensors of many entries, in order, while the caller works on those before.

    Args:
        entries (Iterable[Tuple[Any, List[SavedTensor]]]): Anything, and the tensors that go with it.
        threads (int, optional): How many threads read. Defaults to 2.
        bytes_ahead (int, optional): How many bytes may have been read and not handed out. One entry is always read.

    Yields:
        Tuple[Any, List[torch.Tensor]]: The same, with tensors that have been read.

    Raises:
        UnreadableFileError: If a file ends too early or cannot be read. Entries before it have been handed out then.
    """
    batches = _batches(entries, min(_STAGING, bytes_ahead // max(1, threads)))
    waiting: "deque[_Batch]" = deque()
    held = 0
    following = next(batches, None)
    stop = threading.Event()
    pool = ThreadPoolExecutor(max_workers=max(1, threads), thread_name_prefix="read-checkpoint")
    try:
        while waiting or following is not None:
            while following is not None and (not waiting or held + following.size <= bytes_ahead):
                following.start(pool, stop)
                held += following.size
                waiting.append(following)
                following = next(batches, None)
            if following is not None:
                following.advise()
            batch = waiting.popleft()
            for entry in batch.finish():
                yield entry
            held -= batch.size
            # Nothing of what was handed out may be kept by this function.
            del batch, entry
    finally:
        stop.set()
        waiting.clear()
        pool.shutdown(wait=True)


def plain(content: Any) -> Any:
    """
    Read every tensor in plain data.

    Args:
        content (Any): Plain data, as an opened file holds it.

    Returns:
        Any: The same with tensors in memory. Containers are changed where they are, if that can be done.

    Raises:
        UnreadableFileError: If a tensor cannot be read.
    """
    found: Dict[int, SavedTensor] = {}
    _replaced(content, lambda tensor: found.setdefault(id(tensor), tensor), {})
    if not found:
        return content
    for tensor in found.values():
        if tensor.refusal:
            raise UnreadableFileError("it holds a tensor that cannot be loaded: {}".format(tensor.refusal))
    made = dict(zip(found, read(list(found.values()))))
    return _replaced(content, lambda tensor: made[id(tensor)], {})


def _replaced(value: Any, change: Any, done: Dict[int, Any]) -> Any:
    kind = type(value)
    if kind is SavedTensor:
        return change(value)
    if id(value) in done:
        return done[id(value)]
    result = value
    if isinstance(value, dict):
        done[id(value)] = value
        for key, item in value.items():
            value[key] = _replaced(item, change, done)
    elif isinstance(value, list) or kind.__name__ == "deque":
        for position, item in enumerate(value):
            value[position] = _replaced(item, change, done)
    elif kind is tuple:
        items = [_replaced(item, change, done) for item in value]
        if any(new is not old for new, old in zip(items, value)):
            result = tuple(items)
    elif kind.__name__ in ("Namespace", "SimpleNamespace"):
        _replaced(vars(value), change, done)
    else:
        return value
    done[id(value)] = result
    return result


def _batches(entries: Iterable[Tuple[Any, List[SavedTensor]]], most: int) -> Iterator["_Batch"]:
    batch = _Batch()
    for key, views in entries:
        size = 0
        for view in views:
            size += prod(view.shape) * view.dtype.itemsize
        if batch.entries and batch.size + size > most:
            yield batch
            batch = _Batch()
        batch.entries.append((key, len(views)))
        batch.views.extend(views)
        batch.size += size
    if batch.entries:
        yield batch


class _Batch:
    """Entries that are read together."""

    def __init__(self) -> None:
        self.entries: List[Tuple[Any, int]] = []
        self.views: List[SavedTensor] = []
        self.size = 0
        self._futures: List[Future] = []
        self._reading: Any = None

    def advise(self) -> None:
        """Tell the kernel that this is what will be read next."""
        for view in self.views:
            if view.source is not None and view.nbytes() >= _SMALL and view.is_contiguous():
                view.source.advise(view.offset, view.nbytes())

    def start(self, pool: ThreadPoolExecutor, stop: threading.Event) -> None:
        """Let threads begin to read."""
        self._reading = _Reading(self.views)
        self._futures = [pool.submit(_unless, stop, job) for job in self._reading.jobs]

    def finish(self) -> Iterator[Tuple[Any, List[torch.Tensor]]]:
        """Wait for the threads, and return the entries with their tensors."""
        for future in self._futures:
            future.result()
        tensors = iter(self._reading.tensors())
        self._reading = None
        return iter([(key, [next(tensors) for _ in range(count)]) for key, count in self.entries])


def _unless(stop: threading.Event, job: Any) -> None:
    if not stop.is_set():
        job()


# ======================================
# what to read, and into what
# ======================================


class _Range:
    """A range of a source that small tensors are copied out of."""

    __slots__ = ("source", "start", "end", "members", "data")

    def __init__(self, source: Any, start: int) -> None:
        self.source = source
        self.start = start
        self.end = start
        self.members: List[int] = []
        self.data = bytearray()

    def fill(self) -> None:
        self.data = bytearray(self.end - self.start)
        self.source.read_into(self.start, self.data)


class _Reading:
    """
    Tensors that are being read.

    Args:
        views (Sequence[SavedTensor]): Descriptors of what to read.

    Attributes:
        jobs: What has to be called, in any order and by any threads, before :meth:`tensors`.
    """

    def __init__(self, views: Sequence[SavedTensor]) -> None:
        self._views = views
        self._results: List[Any] = [None] * len(views)
        self._ranges: List[_Range] = []
        self.jobs: List[Any] = []
        self._marked: List[int] = []
        small: Dict[Any, List[Tuple[int, int, int]]] = defaultdict(list)
        for index, view in enumerate(views):
            if view.refusal is not None:
                raise ValueError("a tensor cannot be read: {}".format(view.refusal))
            if view.requires_grad or view.is_parameter:
                self._marked.append(index)
            size = prod(view.shape) * view.dtype.itemsize
            if not size or size >= _SMALL or not view.is_contiguous():
                self._results[index] = self._large(view, size)
            else:
                small[view.source].append((view.offset, view.offset + size, index))
        for source, spans in small.items():
            self._gather(source, sorted(spans))

    def _gather(self, source: Any, spans: List[Tuple[int, int, int]]) -> None:
        current = None
        for start, end, index in spans:
            if current is None or start > current.end + _PAGE or end - current.start > _STAGING:
                current = _Range(source, start)
                self._ranges.append(current)
                self.jobs.append(current.fill)
            if end > current.end:
                current.end = end
            current.members.append(index)

    def _large(self, view: SavedTensor, size: int) -> torch.Tensor:
        result = _empty_like(view)
        if not size:
            return result
        if result.stride() == view.stride or view.is_contiguous():
            memory = _memory_of(result, size)
            for start in range(0, size, _PIECE):
                piece = memory[start : start + _PIECE]
                self.jobs.append(lambda at=view.offset + start, piece=piece: view.source.read_into(at, piece))
        else:
            self.jobs.append(lambda: _copy_runs(view, result))
        return result

    def tensors(self) -> List[torch.Tensor]:
        """Return the tensors, now that everything has been read."""
        views, results, frombuffer = self._views, self._results, torch.frombuffer
        for each in self._ranges:
            data, base = each.data, each.start
            for index in each.members:
                view = views[index]
                dtype, start = view.dtype, view.offset - base
                if dtype not in _OLD_DTYPES or start % dtype.itemsize:
                    results[index] = _copy_of(memoryview(data)[start : start + view.nbytes()], view)
                    continue
                tensor = frombuffer(data, dtype=dtype, count=prod(view.shape), offset=start)
                if view.stride != _ONE_BY_ONE:
                    tensor = tensor.as_strided(view.shape, view.stride)
                results[index] = tensor.clone()
            each.data = bytearray()
        for index in self._marked:
            marked = views[index].requires_grad
            parameter = views[index].is_parameter
            results[index] = (
                torch.nn.Parameter(results[index], marked) if parameter else results[index].requires_grad_()
            )
        return results


def _copy_of(data: memoryview, view: SavedTensor) -> torch.Tensor:
    result = _empty_like(view)
    _memory_of(result, len(data))[:] = data
    return result


def _empty_like(view: SavedTensor) -> torch.Tensor:
    # Without memory, to ask torch what a clone would look like.
    layout = torch.empty((), dtype=view.dtype, device="meta").as_strided(view.shape, view.stride)
    return torch.empty_strided(view.shape, torch.empty_like(layout).stride(), dtype=view.dtype)


def _memory_of(tensor: torch.Tensor, size: int) -> memoryview:
    memory = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    # The memory is the tensor's, which must live as long as what fills it.
    memory.owner = tensor
    return memoryview(memory).cast("B")


# Some versions of torch end the process when they make tensors of newer dtypes of a buffer.
_OLD_DTYPES = frozenset(
    (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
)
_ONE_BY_ONE = (1,)
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def _copy_runs(view: SavedTensor, result: torch.Tensor) -> None:
    # Elements that do not lie one after another: read what holds them, a bounded part at a time, and copy.
    raw = _RAW[view.dtype.itemsize]
    target = result.view(raw)
    todo = [(view.offset, view.shape, view.stride, target)]
    width = view.dtype.itemsize
    while todo:
        offset, shape, stride, part = todo.pop()
        span = 1 + sum((length - 1) * step for length, step in zip(shape, stride))
        gap = _largest_gap(shape, stride) * width
        if span * width <= _STAGING and gap < _PAGE:
            data = bytearray(span * width)
            view.source.read_into(offset, data)
            part.copy_(torch.frombuffer(data, dtype=raw).as_strided(shape, stride))
            continue
        outer = max((d for d in range(len(shape)) if shape[d] > 1), key=lambda d: stride[d])
        # In halves, so that what fits is read as a whole; one by one where the gaps are not worth reading.
        half = shape[outer] // 2
        for start, length in ((half, shape[outer] - half), (0, half)):
            narrowed = shape[:outer] + (length,) + shape[outer + 1 :]
            todo.append((offset + start * stride[outer] * width, narrowed, stride, part.narrow(outer, start, length)))


def _largest_gap(shape: Tuple[int, ...], stride: Tuple[int, ...]) -> int:
    # Elements that lie between those of the tensor, at the most.
    covered = 1
    gap = 0
    for step, length in sorted((step, length) for step, length in zip(stride, shape) if length > 1):
        gap = max(gap, step - covered)
        covered += step * (length - 1)
    return gap
