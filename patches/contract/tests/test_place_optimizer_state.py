import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.placement import FlatSlice, PartitionedDimension, Replicated


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (1,), (0, 4)])
def test_slices_join_to_the_whole(shape, world_size):
    tensor = torch.arange(float(torch.Size(shape).numel())).view(shape)
    placements = [FlatSlice(Replicated(shape), rank, world_size) for rank in range(world_size)]
    parts = [placement.cut(tensor) for placement in placements]
    assert {tuple(part.shape) for part in parts} == {placements[0].local_shape}
    assert torch.equal(placements[0].join(parts), tensor)


@pytest.mark.parametrize("dimension", [0, 1])
def test_parts_along_a_dimension_join_to_the_whole(dimension):
    tensor = torch.arange(42.0).view(6, 7)
    local_shape = [6, 7]
    # with a row or column of padding where it does not come out even
    local_shape[dimension] = 4 if dimension else 3
    placements = [PartitionedDimension((6, 7), local_shape, rank, 2, dimension) for rank in range(2)]
    parts = [placement.cut(tensor) for placement in placements]
    assert all(list(part.shape) == local_shape for part in parts)
    assert torch.equal(placements[0].join(parts), tensor)


def test_other_shapes_do_not_fit():
    for placement in (Replicated((3, 5)), FlatSlice(Replicated((3, 5)), 0, 2)):
        assert placement.fits((3, 5)) and not placement.fits((5, 3)) and not placement.fits((3, 6))


def test_an_impossible_cut_is_refused():
    with pytest.raises(ValueError):
        PartitionedDimension((6, 7), (3, 3), 0, 2)
