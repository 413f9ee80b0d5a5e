"""Which part of a saved tensor a rank of Gemini keeps: a range of elements of its tensor-parallel part."""

from typing import Callable, Sequence

import torch

from .placement import Placement, Shape, flat_range

__all__ = ["ChunkRange", "CustomPartition"]


class CustomPartition(Placement):
    """
    Tensor parallelism that does not cut along one dimension, e.g. of fused query, key and value weights.

    Args:
        global_shape (Sequence[int]): The shape of the whole parameter.
        local_shape (Sequence[int]): The shape of the parameter on this rank.
        shard (Callable[[torch.Tensor], torch.Tensor]): The layer's own function from a whole tensor to this rank's part.
    """

    divides = True

    def __init__(
        self,
        global_shape: Sequence[int],
        local_shape: Sequence[int],
        shard: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        super().__init__(global_shape)
        self._local_shape: Shape = tuple(local_shape)
        self._shard = shard

    @property
    def local_shape(self) -> Shape:
        return self._local_shape

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._shard(tensor)


class ChunkRange(Placement):
    """
    Gemini: parameters are laid end to end into chunks, and a rank keeps what falls into its slice of the chunk.

    Args:
        whole (Placement): What the ranks of the chunk hold together: ``Replicated`` without tensor parallelism.
        start (int): The first element that this rank keeps, counted in the flattened parameter.
        stop (int): The element behind the last.
    """

    divides = True

    def __init__(self, whole: Placement, start: int, stop: int) -> None:
        super().__init__(whole.global_shape)
        self.whole = whole
        self.start = start
        self.stop = stop

    def fits(self, shape: Sequence[int]) -> bool:
        return self.whole.fits(shape)

    @property
    def local_shape(self) -> Shape:
        return (self.stop - self.start,)

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        return flat_range(self.whole.cut(tensor), self.start, self.stop)
