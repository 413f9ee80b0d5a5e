"""Which part of a saved tensor this rank keeps.

A checkpoint holds whole tensors, shaped like the whole parameter. A rank may keep all of it, a tensor-parallel cut, a
flat slice (ZeRO), or a flat slice of a cut. Everything here is arithmetic on shapes: no process group, no optimizer.
"""

from typing import Optional, Sequence, Tuple

import torch

__all__ = ["Placement", "Replicated", "FlatSlice", "PartitionedDimension"]

Shape = Tuple[int, ...]


def number_of_elements(shape: Sequence[int]) -> int:
    """
    Args:
        shape (Sequence[int]): A tensor's shape.

    Returns:
        int: The number of its elements.
    """
    count = 1
    for length in shape:
        count *= length
    return count


class Placement:
    """
    The rule from the saved state of one parameter to the part that this rank keeps.

    Args:
        global_shape (Sequence[int]): The shape of the whole parameter, which elementwise state is saved in.
    """

    # Whether a rank keeps less than everything, so that state which is not elementwise has no meaning here.
    divides = False

    def __init__(self, global_shape: Sequence[int]) -> None:
        self.global_shape: Shape = tuple(global_shape)

    def fits(self, shape: Sequence[int]) -> bool:
        """
        Args:
            shape (Sequence[int]): The shape of a saved, elementwise tensor.

        Returns:
            bool: Whether it can be state of the whole parameter.
        """
        return tuple(shape) == self.global_shape

    @property
    def local_shape(self) -> Shape:
        """Shape: The shape of what :meth:`cut` returns."""
        raise NotImplementedError

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """
        Take this rank's part.

        Args:
            tensor (torch.Tensor): A saved tensor that :meth:`fits`.

        Returns:
            torch.Tensor: A tensor of :attr:`local_shape`; it may be a view of ``tensor`` or ``tensor`` itself. No more
                of ``tensor`` is read than the part asks for, so that slices of mapped files stay cheap.
        """
        raise NotImplementedError


class Replicated(Placement):
    """Every rank keeps everything."""

    @property
    def local_shape(self) -> Shape:
        return self.global_shape

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class PartitionedDimension(Placement):
    """
    Tensor parallelism: the whole tensor is padded along one dimension if need be, then cut evenly along one.

    Args:
        global_shape (Sequence[int]): The shape of the whole parameter, without padding.
        local_shape (Sequence[int]): The shape of the parameter on this rank.
        rank (int): This rank in the tensor parallel group.
        world_size (int): The size of the tensor parallel group.

    Raises:
        ValueError: If no padding of one dimension followed by an even cut along one leads from one shape to the other.
    """

    divides = True

    def __init__(self, global_shape: Sequence[int], local_shape: Sequence[int], rank: int, world_size: int) -> None:
        super().__init__(global_shape)
        self._local_shape: Shape = tuple(local_shape)
        self.rank = rank
        self.world_size = world_size
        self.dimension: Optional[int] = None
        self._find_dimension()

    def _find_dimension(self) -> None:
        differing = [
            dim for dim, (whole, part) in enumerate(zip(self.global_shape, self._local_shape)) if whole != part
        ]
        same_rank = len(self.global_shape) == len(self._local_shape)
        if same_rank and not differing:
            return
        if same_rank and len(differing) == 1:
            dim = differing[0]
            # What was added along the dimension, behind the last element, so that it divides evenly.
            padding = self._local_shape[dim] * self.world_size - self.global_shape[dim]
            if padding >= 0:
                self.dimension = dim
                return
        raise ValueError(
            "a parameter of shape {} cannot be the part {} of {} ranks".format(
                self.global_shape, self._local_shape, self.world_size
            )
        )

    @property
    def local_shape(self) -> Shape:
        return self._local_shape

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.dimension is None:
            return tensor
        length = self._local_shape[self.dimension]
        whole = self.global_shape[self.dimension]
        # A parameter can be padded without being cut: then every rank holds what one rank of one would.
        start = min(self.rank * length, whole)
        stop = min(start + length, whole)
        part = tensor.narrow(self.dimension, start, stop - start)
        if stop - start == length:
            return part
        padded = tensor.new_zeros(self._local_shape)
        padded.narrow(self.dimension, 0, stop - start).copy_(part)
        return padded


class FlatSlice(Placement):
    """
    ZeRO: the tensor is flattened, padded with zeros to a multiple of the number of ranks, and cut into equal slices.

    Args:
        whole (Placement): What the ranks of the group hold together: ``Replicated`` for pure data parallelism.
        rank (int): This rank in the group that divides the parameter.
        world_size (int): The size of that group.
        padded_to (int, optional): Pad to a multiple of this instead of ``world_size``.
    """

    divides = True

    def __init__(self, whole: Placement, rank: int, world_size: int, padded_to: Optional[int] = None) -> None:
        super().__init__(whole.global_shape)
        self.whole = whole
        self.rank = rank
        self.world_size = world_size
        multiple = padded_to or world_size
        elements = number_of_elements(whole.local_shape)
        self.slice_length = -(-elements // multiple) * multiple // world_size
        self._elements = elements

    def fits(self, shape: Sequence[int]) -> bool:
        # Parameters whose group has one rank are saved flat, padding and all, by ColossalAI.
        return self.whole.fits(shape) or (
            isinstance(self.whole, Replicated) and len(shape) == 1 and shape[0] == self._elements
        )

    @property
    def local_shape(self) -> Shape:
        return (self.slice_length,)

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        start = min(self.rank * self.slice_length, self._elements)
        stop = min(start + self.slice_length, self._elements)
        part = flat_range(tensor if self.fits_flat(tensor) else self.whole.cut(tensor), start, stop)
        if stop - start == self.slice_length:
            return part
        padded = part.new_zeros(self.slice_length)
        padded[: stop - start].copy_(part)
        return padded

    def fits_flat(self, tensor: torch.Tensor) -> bool:
        """
        Args:
            tensor (torch.Tensor): A saved tensor that :meth:`fits`.

        Returns:
            bool: Whether it was saved flat.
        """
        return not self.whole.fits(tensor.shape)


def flat_range(tensor: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """
    Take a range of elements in row-major order.

    Args:
        tensor (torch.Tensor): Any tensor.
        start (int): The first element.
        stop (int): The element behind the last.

    Returns:
        torch.Tensor: ``tensor.flatten()[start:stop]``, without reading rows outside of the range.
    """
    if tensor.dim() > 1 and not tensor.is_contiguous() and stop > start:
        row = tensor[0].numel()
        first = start // row
        last = (stop - 1) // row
        tensor = tensor[first : last + 1]
        start, stop = start - first * row, stop - first * row
    return tensor.reshape(-1)[start:stop]
