"""Reading ranges of files: exactly what was asked for, into memory of one's own, and errors where they belong."""

import os
import random
import threading

import pytest
import torch

from colossalai_fork.checkpoint_io.optimizer_restore.files import reading
from colossalai_fork.checkpoint_io.optimizer_restore.files.reading import (
    FileSource,
    MemorySource,
    UnreadableFileError,
    read,
    read_ahead,
)
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor, contiguous_stride

SIZE = 3 << 20


@pytest.fixture(scope="module")
def data():
    return random.Random(7).randbytes(SIZE)


@pytest.fixture(params=["file", "memory"])
def source(request, tmp_path, data):
    if request.param == "memory":
        return MemorySource(data)
    path = tmp_path / "file"
    path.write_bytes(data)
    return FileSource(str(path))


def whole(data, dtype=torch.int32):
    return torch.frombuffer(bytearray(data), dtype=dtype)


def saved_as(view, source):
    return SavedTensor(
        source, view.storage_offset() * view.element_size(), view.dtype, tuple(view.shape), view.stride()
    )


def views_of(tensor):
    square = tensor[: 512 * 1024].view(512, 1024)
    cube = tensor[5 : 5 + 6 * 50 * 70].view(6, 50, 70)
    images = tensor[: 2 * 16 * 30 * 40].view(2, 16, 30, 40)
    yield from (tensor, tensor[3:7], tensor[7], tensor[:0], tensor[100_000:400_000], square, square.t(), cube)
    yield from (square[:, :512], square[:, 1:2], square[::2], square[:, ::2], square[3::100, 5::300], square[0:0])
    yield from (cube.transpose(0, 1), cube.permute(2, 0, 1), cube[:, 10:20], cube[1:3, :, 3:4], cube[:, None])
    yield from (images.permute(0, 3, 1, 2), tensor[3:4].expand(5), square[:2, None].expand(2, 3, 1024))
    yield from (
        tensor.as_strided((4, 5), (3, 2)),
        tensor.as_strided((1, 3), (100, 1)),
        tensor.as_strided((3, 1), (1, 0)),
    )
    # Wider apart than a page, and wider than what is read at once.
    yield from (tensor.as_strided((3, 4), (200_000, 2000)), tensor.as_strided((700, 2, 3), (1000, 500, 1)))


@pytest.mark.parametrize("staging", [4 << 20, 4096])
def test_every_view_is_what_clone_gives(source, data, monkeypatch, staging):
    monkeypatch.setattr(reading, "_STAGING", staging)
    views = list(views_of(whole(data)))
    for found, view in zip(read([saved_as(view, source) for view in views]), views):
        expected = view.clone()
        assert torch.equal(found, expected) and found.stride() == expected.stride() and found.dtype == view.dtype
        assert found.untyped_storage().nbytes() == view.numel() * view.element_size()


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.complex128, torch.bool, torch.float8_e4m3fn, torch.int64], ids=str
)
def test_every_width_of_elements(data, dtype):
    numbers = bytes(byte & 1 for byte in data) if dtype == torch.bool else data
    tensor = whole(numbers, dtype)
    source = MemorySource(numbers)
    views = [tensor[3:9], tensor[: 64 * 1024].view(64, 1024)[:, 1:3], tensor[: 64 * 1024].view(64, 1024).t()]
    for found, view in zip(read([saved_as(view, source) for view in views]), views):
        assert found.dtype == dtype and found.stride() == view.clone().stride()
        assert torch.equal(found.contiguous().view(-1).view(torch.uint8), view.contiguous().view(-1).view(torch.uint8))


def test_data_that_lies_at_any_offset(data):
    source = MemorySource(data)
    views = [SavedTensor(source, offset, torch.float64, (3,), (1,)) for offset in range(17)]
    views += [SavedTensor(source, offset, torch.int64, (100, 3), (7, 2)) for offset in range(17)]
    for view, found in zip(views, read(views)):
        span = 8 * (1 + sum((length - 1) * step for length, step in zip(view.shape, view.stride)))
        start = whole(data[view.offset : view.offset + span], view.dtype)
        expected = start.as_strided(view.shape, view.stride)
        assert torch.equal(found.contiguous().view(torch.int64), expected.contiguous().view(torch.int64))


class Watched(MemorySource):
    """Notes which ranges are read."""

    def __init__(self, data):
        super().__init__(data)
        self.ranges = []

    def read_into(self, offset, buffer):
        self.ranges.append((offset, len(buffer)))
        super().read_into(offset, buffer)


def test_only_what_is_needed_is_read(data):
    source = Watched(data)
    square = saved_as(whole(data)[: 512 * 1024].view(512, 1024), source)
    read([square.narrow(0, 128, 256)])
    assert sum(length for _, length in source.ranges) == 1 << 20
    source.ranges.clear()
    # Half of every row of 16 KiB: the other half is not worth reading.
    wide = saved_as(whole(data)[: 128 * 4096].view(128, 4096), source)
    read([wide.narrow(1, 2048, 2048)])
    assert sum(length for _, length in source.ranges) == 1 << 20 and len(source.ranges) == 128


def test_small_neighbours_are_read_at_once_and_strangers_are_not(data):
    source = Watched(data)
    views = [SavedTensor(source, 64 * number, torch.float32, (2,), (1,)) for number in range(1000)]
    views += [SavedTensor(source, 2_000_000, torch.float32, (2,), (1,))]
    random.Random(1).shuffle(views)
    read(views)
    assert sorted(source.ranges) == [(0, 64 * 999 + 8), (2_000_000, 8)]


def test_results_share_nothing(source):
    view = SavedTensor(source, 0, torch.uint8, (10,), (1,))
    first, second = read([view, view])
    first.zero_()
    assert read([view])[0].tolist() == second.tolist() != first.tolist()


def test_narrow_flat_and_reshape_are_those_of_tensors(data):
    source = MemorySource(data)
    tensor = whole(data)[:24].view(2, 3, 4)
    saved = saved_as(tensor, source)
    pairs = [
        (saved.narrow(1, 1, 2), tensor.narrow(1, 1, 2)),
        (saved.narrow(2, 3, 1).narrow(0, 1, 1), tensor.narrow(2, 3, 1).narrow(0, 1, 1)),
        (saved.narrow(0, 2, 0), tensor.narrow(0, 2, 0)),
        (saved.flat(), tensor.flatten()),
        (saved.flat().narrow(0, 5, 7), tensor.flatten()[5:12]),
        (saved.reshape((4, 6)), tensor.reshape(4, 6)),
        (saved.narrow(0, 1, 1).flat(), tensor[1:].flatten()),
    ]
    for (view, expected), found in zip(pairs, read([view for view, _ in pairs])):
        assert torch.equal(found, expected) and view.is_contiguous() == expected.is_contiguous()
        assert (view.dim(), view.numel(), view.nbytes()) == (expected.dim(), expected.numel(), 4 * expected.numel())
    for call in (
        lambda: saved.narrow(1, 2, 2),
        lambda: saved.narrow(1, -1, 1),
        lambda: saved.narrow(3, 0, 1),
        lambda: saved.narrow(0, 0, -1),
    ):
        with pytest.raises(IndexError):
            call()
    for call in (lambda: saved.narrow(1, 0, 2).flat(), lambda: saved.reshape((5, 5)), lambda: saved.reshape((-4, -6))):
        with pytest.raises(ValueError):
            call()


def test_contiguous_strides():
    for shape in ((), (3,), (2, 3, 4), (2, 0, 4), (1, 1), (0,)):
        assert contiguous_stride(shape) == torch.empty(shape).stride()


def test_what_cannot_be_read_is_said(source):
    with pytest.raises(ValueError, match="meta"):
        read([SavedTensor(None, 0, torch.float32, (2,), (1,), "it is on the meta device")])
    for shape in ((1000,), (1 << 18,)):
        with pytest.raises(UnreadableFileError):
            read([SavedTensor(source, SIZE - 40, torch.float32, shape, (1,))])


# ======================================
# files
# ======================================


def test_a_file_that_changes_is_noticed(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    source = FileSource(str(path))
    source.check_unchanged()
    path.rename(tmp_path / "renamed")
    source.check_unchanged()
    (tmp_path / "renamed").rename(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(UnreadableFileError, match="written to since"):
        source.check_unchanged()
    os.truncate(path, 100)
    with pytest.raises(UnreadableFileError, match="too early"):
        source.read_into(50, bytearray(100))


def test_a_file_that_was_given_back_is_opened_again_unless_it_is_another(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    source = FileSource(str(path))
    source.close()
    source.close()
    assert source.read_bytes(3, 5) == data[3:8]
    source.close()
    path.unlink()
    with pytest.raises(UnreadableFileError, match="does not exist"):
        source.read_bytes(3, 5)
    path.write_bytes(data)
    with pytest.raises(UnreadableFileError, match="replaced or written to"):
        source.read_bytes(3, 5)


def test_a_read_that_fails_is_an_error_of_the_file(tmp_path, data, monkeypatch):
    def fails(*arguments):
        raise OSError(5, "Input/output error")

    path = tmp_path / "file"
    path.write_bytes(data)
    source = FileSource(str(path))
    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(UnreadableFileError, match="Input/output error") as info:
        source.read_bytes(0, 1)
    assert info.value.file == str(path)


def test_short_reads_are_continued(tmp_path, data, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(data)
    source = FileSource(str(path))
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, views, offset: preadv(file, [views[0][:1000]], offset))
    assert source.read_bytes(5, 10_000) == data[5:10_005]
    monkeypatch.delattr(os, "preadv")
    assert source.read_bytes(5, 10_000) == data[5:10_005]


# ======================================
# reading ahead
# ======================================


def entries_of(source, sizes, tensors=3):
    offset = 0
    for number, size in enumerate(sizes):
        yield number, [SavedTensor(source, offset, torch.uint8, (size,), (1,)) for _ in range(tensors)]
        offset += size


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("sizes", [[3] * 5000, [1 << 20] * 2 + [5], [0, 0, 7], [], [200_000] * 15], ids=len)
def test_entries_come_in_order(source, data, threads, sizes, monkeypatch):
    monkeypatch.setattr(reading, "_PIECE", 100_000)
    start = 0
    seen = 0
    for number, tensors in read_ahead(entries_of(source, sizes), threads, 1 << 20):
        assert number == seen and len(tensors) == 3
        for tensor in tensors:
            assert bytes(tensor.tolist()) == data[start : start + sizes[number]]
        start += sizes[number]
        seen += 1
    assert seen == len(sizes)


def test_an_entry_without_tensors_keeps_its_place(source):
    view = SavedTensor(source, 0, torch.uint8, (2,), (1,))
    assert [(key, len(found)) for key, found in read_ahead([("a", []), ("b", [view]), ("c", [])])] == [
        ("a", 0),
        ("b", 1),
        ("c", 0),
    ]


def test_no_more_is_read_than_may_be_held(data):
    source = Watched(data)
    size = 200_000
    handed_out = 0
    for number, _ in read_ahead(entries_of(source, [size] * 15, 1), 2, 3 * size):
        begun = sum(length for _, length in source.ranges)
        assert begun <= handed_out + 3 * size + size
        handed_out += size
    # More than may be held is read alone.
    assert len(list(read_ahead(entries_of(source, [size] * 3, 1), 2, 1))) == 3


class Failing(MemorySource):
    def read_into(self, offset, buffer):
        if offset >= 2_000_000:
            raise UnreadableFileError("reading failed")
        super().read_into(offset, buffer)


def test_an_error_comes_in_its_place(data, monkeypatch):
    monkeypatch.setattr(reading, "_STAGING", 100_000)
    seen = []
    with pytest.raises(UnreadableFileError, match="reading failed"):
        for number, _ in read_ahead(entries_of(Failing(data), [100_000] * 25, 1)):
            seen.append(number)
    assert seen == list(range(20))
    assert no_readers()


def test_an_error_of_the_caller_ends_the_threads(source):
    entries = read_ahead(entries_of(source, [100_000] * 25, 1), 3)
    next(entries)
    entries.close()
    assert no_readers()
    with pytest.raises(ZeroDivisionError):
        for _ in read_ahead(((number, 1 // (2 - number)) and (number, []) for number in range(3))):
            pass
    assert no_readers()


def no_readers():
    return not [thread for thread in threading.enumerate() if thread.name.startswith("read-checkpoint")]
