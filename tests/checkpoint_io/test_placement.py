"""Cutting a saved tensor for every rank and putting the parts together gives it back, bit for bit."""

import dataclasses
import math
from typing import Optional

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from colossalai_fork.checkpoint_io.optimizer_restore.gemini_placement import CustomPartition, CustomRange
from colossalai_fork.checkpoint_io.optimizer_restore.moe_destination import SavedUngathered
from colossalai_fork.checkpoint_io.optimizer_restore.placement import (
    FlatRange,
    FlatSlice,
    PartitionedDimension,
    Replicated,
)
from colossalai_fork.gate.contract.comparison import differences

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A parameter on a mesh of ranks.

    Args:
        shape (tuple): the whole parameter.
        dimension (Optional[int]): what tensor parallelism cuts, if it does.
        tensor_parallel (int): size of the tensor parallel group.
        length (int): length of the dimension on each of its ranks, padding included.
        zero (Optional[int]): size of the group that ZeRO divides the parameter among, if it does.
    """

    shape: tuple
    dimension: Optional[int] = None
    tensor_parallel: int = 1
    length: int = 0
    zero: Optional[int] = None

    @property
    def local_shape(self):
        """Shape on a tensor parallel rank."""
        shape = list(self.shape)
        if self.dimension is not None:
            shape[self.dimension] = self.length
        return tuple(shape)

    def whole(self, rank):
        """Placement of a tensor parallel rank."""
        if self.dimension is None:
            return Replicated(self.shape)
        return PartitionedDimension(self.shape, self.local_shape, rank, self.tensor_parallel, self.dimension)

    def slices(self, rank):
        """Placements of the ranks that divide what a tensor parallel rank would hold."""
        return [FlatSlice(self.whole(rank), zero_rank, self.zero) for zero_rank in range(self.zero)]

    def expected(self, tensor):
        """The parts by (tensor parallel rank, ZeRO rank), worked out on a padded copy of the whole tensor."""
        if self.dimension is None:
            parts = [tensor]
        else:
            padded_shape = list(self.shape)
            padded_shape[self.dimension] = self.length * self.tensor_parallel
            padded = torch.zeros(padded_shape, dtype=tensor.dtype)
            padded[tuple(slice(0, length) for length in self.shape)] = tensor
            parts = torch.split(padded, self.length, self.dimension) if self.length else [padded] * self.tensor_parallel
        if self.zero is None:
            return [[part] for part in parts]
        return [self._expected_slices(part) for part in parts]

    def _expected_slices(self, part):
        flat = part.flatten()
        length = math.ceil(flat.numel() / self.zero)
        padded = torch.zeros(length * self.zero, dtype=flat.dtype)
        padded[: flat.numel()] = flat
        return [padded[rank * length : (rank + 1) * length] for rank in range(self.zero)]


@st.composite
def layouts(draw, zero=True):
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    layout = Layout(shape)
    if shape and draw(st.booleans()):
        dimension = draw(st.integers(0, len(shape) - 1))
        size = draw(st.integers(1, 4))
        length = math.ceil(shape[dimension] / size) + draw(st.integers(0, 3))
        layout = Layout(shape, dimension, size, length)
    return dataclasses.replace(layout, zero=draw(st.integers(1, 5))) if zero and draw(st.booleans()) else layout


@st.composite
def tensors(draw, shape):
    """Tensors of any bits, not-a-number included, some of them not laid out row by row."""
    dtype = draw(st.sampled_from(DTYPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    if draw(st.booleans()) and len(shape) > 1:
        return any_bits(shape[::-1], dtype, generator).permute(*reversed(range(len(shape))))
    return any_bits(shape, dtype, generator)


def any_bits(shape, dtype, generator):
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    count = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.randint(0, 256, (count,), generator=generator, dtype=torch.uint8).view(dtype).view(shape)


def assert_same_bits(found, expected):
    assert differences(expected, found) == []


def check(layout, tensor):
    """Cut for every rank, compare with what is expected there, and put together again."""
    expected = layout.expected(tensor)
    wholes = [layout.whole(rank) for rank in range(layout.tensor_parallel)]
    parts = []
    for rank, whole in enumerate(wholes):
        if layout.zero is None:
            assert whole.fits(tensor.shape)
            part = whole.cut(tensor)
            assert whole.is_part(part.shape)
            assert_same_bits(part, expected[rank][0])
        else:
            slices = layout.slices(rank)
            cut = [each.cut(tensor) for each in slices]
            for number, (placement, piece) in enumerate(zip(slices, cut)):
                assert placement.fits(tensor.shape) and placement.is_part(piece.shape)
                assert tuple(piece.shape) == placement.local_shape
                assert_same_bits(piece, expected[rank][number])
            part = slices[0].join(cut)
        assert tuple(part.shape) == whole.local_shape
        parts.append(part)
    assert_same_bits(wholes[0].join(parts), tensor)


@given(st.data())
def test_parts_put_together_are_the_whole(data):
    layout = data.draw(layouts())
    check(layout, data.draw(tensors(layout.shape)))


# Named faults, each of which the property has to find.
def _unpadded_start(self, tensor):
    size = tensor.shape[self.dimension] // self.world_size
    return tensor.narrow(self.dimension, self.rank * size, size)


def _slices_without_padding(self, tensor):
    return self.whole.cut(tensor).reshape(-1).tensor_split(self.world_size)[self.rank]


def _slices_in_memory_order(self, tensor):
    part = self.whole.cut(tensor)
    padded = torch.zeros((self.stop - self.start) * self.world_size, dtype=part.dtype)
    padded[: part.numel()] = part.as_strided((part.numel(),), (1,))
    return padded[self.rank * (self.stop - self.start) : (self.rank + 1) * (self.stop - self.start)]


def _rows_instead_of_columns(self, tensor):
    return tensor.narrow(0, 0, self.local_shape[0])


@pytest.mark.parametrize(
    "placement, fault",
    [
        (PartitionedDimension, _unpadded_start),
        (PartitionedDimension, _rows_instead_of_columns),
        (FlatSlice, _slices_without_padding),
        (FlatSlice, _slices_in_memory_order),
    ],
)
def test_the_property_finds_faults(monkeypatch, placement, fault):
    monkeypatch.setattr(placement, "cut", fault)
    generator = torch.Generator().manual_seed(0)
    found = []
    for layout in (
        Layout((5, 3), 0, 2, 4),
        Layout((3, 5), 1, 2, 3),
        Layout((5, 3), zero=4),
        Layout((4, 6), 1, 2, 3, 2),
    ):
        for tensor in (torch.rand(layout.shape, generator=generator), torch.rand(layout.shape[::-1]).t()):
            try:
                check(layout, tensor)
            except (AssertionError, RuntimeError):
                found.append(layout)
    assert found


@given(layouts(zero=False))
def test_dimension_is_found_where_shapes_differ(layout):
    shapes = layout.shape, layout.local_shape
    inferred = PartitionedDimension(*shapes, 0, layout.tensor_parallel)
    assert inferred.dimension == (layout.dimension if shapes[0] != shapes[1] else None)


def test_padding_can_hide_the_cut():
    # 3 rows padded to 6 and cut in two: the second rank holds nothing but padding, though both shapes are (3, 2).
    tensor = torch.arange(1.0, 7.0).reshape(3, 2)
    parts = [PartitionedDimension((3, 2), (3, 2), rank, 2, 0).cut(tensor) for rank in range(2)]
    assert torch.equal(parts[0], tensor) and not parts[1].any()
    assert torch.equal(PartitionedDimension((3, 2), (3, 2), 1, 2).cut(tensor), tensor)


@pytest.mark.parametrize(
    "global_shape, local_shape, world_size, dimension",
    [
        ((4, 4), (2, 2), 2, None),
        ((4, 4), (1, 4), 2, None),
        ((4, 4), (4,), 2, None),
        ((4, 4), (2, 4), 2, 1),
        ((4,), (1,), 3, 0),
        ((4, 4), (4, 4, 1), 1, 0),
    ],
)
def test_shapes_that_no_cut_connects(global_shape, local_shape, world_size, dimension):
    with pytest.raises(ValueError, match="cannot be the part"):
        PartitionedDimension(global_shape, local_shape, 0, world_size, dimension)


@pytest.mark.parametrize("shape", [(8, 3), (3, 4), (4, 2), (12,), (1, 4, 3), (4, 3, 1), ()])
def test_state_of_another_shape_does_not_fit(shape):
    cut = PartitionedDimension((4, 3), (2, 3), 0, 2, 0)
    for placement in (Replicated((4, 3)), cut, FlatSlice(cut, 0, 2), FlatSlice(Replicated((4, 3)), 0, 2)):
        assert not placement.fits(shape)
        assert placement.fits((4, 3))


@given(st.data())
def test_state_that_counts_one_along_a_dimension(data):
    layout = data.draw(layouts(zero=False).filter(lambda layout: layout.dimension is not None))
    # As many numbers as ranks are taken for elements where the parameter has that many.
    assume(layout.length == 1 or layout.shape[layout.dimension] != layout.tensor_parallel)
    shape = [length if data.draw(st.booleans()) else 1 for length in layout.local_shape]
    parts = [data.draw(tensors(tuple(shape))).double() for _ in range(layout.tensor_parallel)]
    whole = layout.whole(0).join(parts)
    if shape[layout.dimension] == layout.length:
        # Padding is not saved.
        parts = layout_without_padding(layout, parts)
    for rank, part in enumerate(parts):
        placement = layout.whole(rank)
        assert placement.is_part(shape) and (placement.fits(whole.shape) or placement.fits_reduced(whole.shape))
        assert_same_bits(placement.cut(whole), part)


def layout_without_padding(layout, parts):
    kept = []
    for rank, part in enumerate(parts):
        part = part.clone()
        real = max(0, min(layout.length, layout.shape[layout.dimension] - rank * layout.length))
        part.narrow(layout.dimension, real, layout.length - real).zero_()
        kept.append(part)
    return kept


@pytest.mark.parametrize("shape", [(3, 6), (4, 5), (4, 7), (24,), (2, 3)])
def test_reduced_state_of_an_unknown_part(shape):
    # One number for each column, or two of them one behind the other, or one for each row: anything else is refused.
    placement = PartitionedDimension((4, 6), (2, 6), 0, 2, 0)
    assert not placement.fits_reduced(shape)
    assert all(placement.fits_reduced(good) for good in ((4, 1), (2, 6), (2, 1)))
    assert not FlatSlice(placement, 0, 2).fits_reduced((4, 1))


@given(st.data())
def test_state_saved_ungathered(data):
    """A rank that holds all of a parameter may have saved it flat, and with padding."""
    layout = data.draw(layouts())
    tensor = data.draw(tensors(layout.shape))
    placed = layout.slices(0)[-1] if layout.zero else layout.whole(0)
    placement = SavedUngathered(placed, layout.local_shape)
    expected = placed.cut(tensor)
    held = torch.zeros(placement.held_shape, dtype=tensor.dtype)
    held[tuple(slice(0, length) for length in layout.shape)] = tensor
    for saved in (tensor, tensor.flatten(), held, held.flatten()):
        assert placement.fits(saved.shape)
        assert_same_bits(placement.cut(saved), expected)
    assert placement.local_shape == placed.local_shape


def test_state_that_no_rank_holds_all_of_was_not_saved_flat_by_it():
    placement = SavedUngathered(PartitionedDimension((4, 6), (2, 6), 0, 2, 0), (2, 6))
    assert not placement.fits((12,)) and not placement.fits((2, 6))
    assert placement.fits((24,)) and placement.fits_reduced((2, 6))


@given(st.data())
def test_a_range_of_a_cut_needs_no_rows_outside_of_it(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=3)))
    tensor = torch.arange(float(math.prod(shape))).reshape(shape)
    parts = data.draw(st.integers(1, shape[1]))
    length = -(-shape[1] // parts)
    local_shape = (shape[0], length, *shape[2:])
    whole = PartitionedDimension(shape, local_shape, data.draw(st.integers(0, parts - 1)), parts, 1)
    start = data.draw(st.integers(0, math.prod(local_shape)))
    stop = data.draw(st.integers(start, math.prod(local_shape)))
    placement = FlatRange(whole, start, stop)
    assert_same_bits(placement.cut(tensor), whole.cut(tensor).flatten()[start:stop])
    row = math.prod(local_shape[1:])
    rows = (stop - 1) // row - start // row + 1 if stop > start else 0
    assert placement.held(tensor).numel() <= rows * row


def test_slices_of_a_whole_tensor_are_views():
    tensor = torch.arange(24.0).reshape(4, 6)
    placements = [Replicated((4, 6)), PartitionedDimension((4, 6), (2, 6), 1, 2, 0)]
    placements += [FlatSlice(each, 1, 3) for each in placements]
    for placement in placements:
        assert placement.cut(tensor).untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


@given(st.data())
def test_state_averaged_over_a_dimension(data):
    """Moments of rows and columns: the parts of the average are the average of the parts, by all ranks together."""
    layout = data.draw(layouts(zero=False).filter(lambda layout: len(layout.shape) > 1 and 0 not in layout.shape))
    dim = data.draw(st.integers(0, len(layout.shape) - 1))
    averaged = torch.arange(1.0, 1 + math.prod(layout.shape)).reshape(layout.shape).sum(dim)
    placements = [layout.whole(rank).averaged(dim) for rank in range(layout.tensor_parallel)]
    assert all(placement.fits(averaged.shape) for placement in placements)
    parts = [placement.cut(averaged) for placement in placements]
    assert_same_bits(placements[0].join(parts), averaged)
    for placement, part in zip(placements, parts):
        expected = list(layout.local_shape)
        del expected[dim]
        if dim == layout.dimension:
            expected = list(averaged.shape)
        assert list(part.shape) == list(placement.local_shape) == expected


def test_slices_have_no_rows_and_columns():
    assert FlatSlice(Replicated((4, 3)), 0, 2).averaged(0) is None
    assert SavedUngathered(FlatSlice(Replicated((4, 3)), 0, 2), (4, 3)).averaged(0) is None
    assert SavedUngathered(Replicated((4, 3)), (4, 3)).averaged(0).fits((3,))


def thirds_of(tensor, rank, size):
    """Query, key and value in one: each rank has its part of each."""
    return torch.cat([third.chunk(size, 0)[rank] for third in tensor.chunk(3, 0)])


@given(st.data())
def test_chunks_put_together_are_the_whole(data):
    """Parameters laid end to end, cut where the slices of the chunk end, tensor-parallel parts and fused weights among them."""
    world_size, tensor_parallel = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    laid = []
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()):
            layout = dataclasses.replace(data.draw(layouts(zero=False)), tensor_parallel=tensor_parallel)
            if layout.dimension is not None:
                length = math.ceil(layout.shape[layout.dimension] / tensor_parallel)
                layout = dataclasses.replace(layout, length=length)
            wholes = [layout.whole(rank) for rank in range(tensor_parallel)]
            tensor = data.draw(tensors(layout.shape))
            parts = [part[0] for part in layout.expected(tensor)]
        else:
            shape = (3 * tensor_parallel * data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3)))
            tensor = data.draw(tensors(shape))
            parts = [thirds_of(tensor, rank, tensor_parallel) for rank in range(tensor_parallel)]
            wholes = [
                CustomPartition(shape, part.shape, lambda whole, rank=rank: thirds_of(whole, rank, tensor_parallel))
                for rank, part in enumerate(parts)
            ]
        laid.append((tensor, wholes, parts if len(parts) == tensor_parallel else parts * tensor_parallel))
    slice_length = data.draw(st.integers(1, 40))
    for tensor_parallel_rank in range(tensor_parallel):
        start = 0
        for tensor, wholes, parts in laid:
            whole, part = wholes[tensor_parallel_rank], parts[tensor_parallel_rank]
            count, found = part.numel(), []
            # Slices that end before the parameter begins, or begin behind its end, have none of it.
            for rank in range(max(world_size, -(-(start + count) // slice_length))):
                bounds = (min(max(each * slice_length - start, 0), count) for each in (rank, rank + 1))
                placement = (CustomRange if isinstance(whole, CustomPartition) else FlatRange)(whole, *bounds)
                piece = placement.cut(tensor)
                assert placement.fits(tensor.shape) and tuple(piece.shape) == placement.local_shape
                assert placement.global_shape == tuple(tensor.shape) and piece.dtype == tensor.dtype
                found.append(piece)
            assert tuple(part.shape) == whole.local_shape
            assert_same_bits(torch.cat(found), part.flatten())
            start += count


def test_chunks_in_memory_order_are_found(monkeypatch):
    def in_memory_order(self, tensor):
        part = self.whole.cut(tensor)
        return part.as_strided((part.numel(),), (1,))[self.start : self.stop]

    monkeypatch.setattr(FlatRange, "cut", in_memory_order)
    tensor = torch.arange(6.0).reshape(2, 3).t()
    pieces = [FlatRange(Replicated((3, 2)), start, start + 2).cut(tensor) for start in (0, 2, 4)]
    assert not torch.equal(torch.cat(pieces), tensor.flatten())
