"""How tensor parallelism has laid a parameter out, read from the parameter itself."""

from typing import Optional, Sequence

import torch
from colossalai.tensor.d_tensor import get_sharding_spec, is_distributed_tensor

from .placement import PartitionedDimension, Placement, Replicated

__all__ = ["partitioned_dimension", "tensor_parallel_placement"]


def partitioned_dimension(param: torch.Tensor) -> Optional[int]:
    """
    Find the dimension along which tensor parallelism cuts a parameter.

    Args:
        param (torch.Tensor): A parameter on this rank.

    Returns:
        Optional[int]: The dimension that its distributed layout cuts; None if it has no such layout. Fused weights have
            none, though they are cut.
    """
    if not is_distributed_tensor(param):
        return None
    cut = [dim for dim, spec in enumerate(get_sharding_spec(param).sharding_sequence) if not spec.is_replica]
    return cut[0] if len(cut) == 1 else None


def tensor_parallel_placement(
    param: torch.Tensor, global_shape: Sequence[int], rank: int, world_size: int
) -> Placement:
    """
    Give the placement of a parameter that tensor parallelism cuts.

    Args:
        param (torch.Tensor): A parameter on this rank.
        global_shape (Sequence[int]): Its shape before tensor parallelism cut or padded it.
        rank (int): This rank in the tensor parallel group.
        world_size (int): The size of the tensor parallel group.

    Returns:
        Placement: The part of the whole parameter that this rank holds.

    Raises:
        ValueError: If the shapes allow no such part.
    """
    dimension = partitioned_dimension(param)
    if dimension is not None:
        return PartitionedDimension(global_shape, param.shape, rank, world_size, dimension)
    if param.shape == torch.Size(global_shape):
        return Replicated(global_shape)
    if all(length >= whole for length, whole in zip(param.shape, global_shape)):
        # Without tensor parallelism a vocabulary is padded all the same.
        return PartitionedDimension(global_shape, param.shape, 0, 1)
    return PartitionedDimension(global_shape, param.shape, rank, world_size)
