"""An optimizer of the MoE plugin as a destination: hybrid parallelism, and state that was saved as one rank holds it."""

from typing import Any, Optional, Sequence

import torch

from .hybrid_parallel_destination import HybridParallelDestination
from .placement import Placement, Shape, number_of_elements

__all__ = ["MoEDestination", "SavedUngathered"]


class MoEDestination(HybridParallelDestination):
    """
    An optimizer of the MoE plugin, whose checkpoints may hold state that was not gathered.

    Args:
        optimizer (OptimizerWrapper): The boosted optimizer.
        tp_rank (int): This rank in the tensor parallel group.
        tp_size (int): The size of the tensor parallel group.
        ranks (ProcessGroup, optional): The ranks that load together.
    """

    def placement(self, param: torch.Tensor) -> Placement:
        """
        Tell which part of a parameter's saved state this rank keeps.

        Args:
            param (torch.Tensor): One of the torch optimizer's parameters.

        Returns:
            Placement: As under hybrid parallelism, for state in any shape that the plugin saves it in.
        """
        placement = super().placement(param)
        return SavedUngathered(placement, self.working_param(param).shape)


class SavedUngathered(Placement):
    """
    State that may have been saved as one rank holds it, because that rank holds all of the parameter.

    ColossalAI's MoE plugin saves so: flat where ZeRO has nothing to divide, e.g. the state of experts of which no other
    rank has a copy, and with the rows that pad a vocabulary.

    Args:
        placed (Placement): The rule for state in the parameter's own shape.
        held_shape (Sequence[int]): The shape of the parameter on the rank that saves.
    """

    def __init__(self, placed: Placement, held_shape: Sequence[int]) -> None:
        super().__init__(placed.global_shape)
        self.placed = placed
        # Even a rank that keeps everything has to give it back its shape.
        self.divides = True
        whole = self.global_shape
        holds_all = len(held_shape) == len(whole) and all(held >= length for held, length in zip(held_shape, whole))
        self.held_shape: Shape = tuple(held_shape) if holds_all else whole

    def _saved_shape(self, shape: Sequence[int]) -> Optional[Shape]:
        # The shape that the tensor had before it may have been flattened.
        for candidate in (self.global_shape, self.held_shape):
            if tuple(shape) in (candidate, (number_of_elements(candidate),)):
                return candidate
        return None

    @property
    def keeps_everything(self) -> bool:
        return self.placed.keeps_everything

    def fits(self, shape: Sequence[int]) -> bool:
        return self._saved_shape(shape) is not None

    def fits_reduced(self, shape: Sequence[int]) -> bool:
        return self.placed.fits_reduced(shape)

    def averaged(self, dim: int) -> Optional[Placement]:
        return self.placed.averaged(dim)

    @property
    def local_shape(self) -> Shape:
        return self.placed.local_shape

    def held(self, tensor: Any) -> Any:
        shape = self._saved_shape(tensor.shape)
        if shape is None:
            return self.placed.held(tensor)
        if tuple(tensor.shape) != shape:
            tensor = tensor.reshape(shape)
        for dim, length in enumerate(self.global_shape):
            if length != shape[dim]:
                tensor = tensor.narrow(dim, 0, length)
        return self.placed.held(tensor)

    def place(self, part: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return self.placed.place(part, shape if self._saved_shape(shape) is None else self.global_shape)

    def is_part(self, shape: Sequence[int]) -> bool:
        return self.placed.is_part(shape)

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return self.placed.join(parts)
