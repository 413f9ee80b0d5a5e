"""Which part of a saved tensor a rank of Gemini keeps where a layer cuts its own weights."""

from typing import Any, Callable, Sequence

import torch

from .placement import FlatRange, Placement, Shape, padded

__all__ = ["CustomPartition", "CustomRange"]


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

    def place(self, part: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return self._shard(part).clone()


class CustomRange(FlatRange):
    """A range of the part that a layer cuts by a function of its own, which asks for the whole tensor."""

    def held(self, tensor: Any) -> Any:
        return tensor

    def place(self, part: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        own = self.whole.place(part, shape).flatten()
        return padded(own.narrow(0, *self._range_of(own.numel())).clone(), 0, self.stop - self.start)
