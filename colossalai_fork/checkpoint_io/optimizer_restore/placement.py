"""Which part of a saved tensor this rank keeps.

A checkpoint holds whole tensors, shaped like the whole parameter. A rank may keep all of it, a tensor-parallel cut, a
flat slice (ZeRO), or a flat slice of a cut. Everything here is arithmetic on shapes: no process group, no optimizer.

Taking a part has two steps, so that a file is asked for no more than the part. ``held`` narrows the saved tensor, of which
no byte is in memory yet. ``place`` brings what was read into the form that the rank keeps, padding included.
"""

from typing import Any, Optional, Sequence, Tuple

import torch

__all__ = ["FlatRange", "FlatSlice", "PartitionedDimension", "Placement", "Replicated"]

Shape = Tuple[int, ...]


def number_of_elements(shape: Sequence[int]) -> int:
    """
    Count the elements of a shape.

    Args:
        shape (Sequence[int]): A tensor's shape.

    Returns:
        int: The number of its elements.
    """
    count = 1
    for length in shape:
        count *= length
    return count


def _without(shape: Sequence[int], dim: int) -> Shape:
    return tuple(shape[:dim]) + tuple(shape[dim + 1 :])


class Placement:
    """
    The rule from the saved state of one parameter to the part that this rank keeps.

    Args:
        global_shape (Sequence[int]): The shape of the whole parameter, which elementwise state is saved in.
    """

    # Whether tensors have to be cut.
    divides = False

    def __init__(self, global_shape: Sequence[int]) -> None:
        self.global_shape: Shape = tuple(global_shape)

    @property
    def keeps_everything(self) -> bool:
        """bool: Whether the rank keeps whole state, so that state need not be elementwise, nor even a tensor."""
        return not self.divides

    def fits(self, shape: Sequence[int]) -> bool:
        """
        Tell whether saved state of a shape fits the parameter.

        Args:
            shape (Sequence[int]): The shape of a saved, elementwise tensor.

        Returns:
            bool: Whether it can be state of the whole parameter.
        """
        return tuple(shape) == self.global_shape

    def fits_reduced(self, shape: Sequence[int]) -> bool:
        """
        Tell whether factored moments of a shape fit the parameter.

        Args:
            shape (Sequence[int]): The shape of a saved tensor that is not elementwise, such as a moment of each row.

        Returns:
            bool: Whether :meth:`cut` can tell this rank's part of it.
        """
        return self.keeps_everything

    def averaged(self, dim: int) -> "Optional[Placement]":
        """
        Give the placement of state that is averaged over a dimension.

        Args:
            dim (int): One of the parameter's dimensions.

        Returns:
            Optional[Placement]: The placement of state that is averaged over this dimension, by all ranks together; None if
                the rank's part of such state is not known.
        """
        return Replicated(_without(self.global_shape, dim)) if self.keeps_everything else None

    @property
    def local_shape(self) -> Shape:
        """Shape: The shape of what :meth:`cut` returns for an elementwise tensor."""
        raise NotImplementedError

    def held(self, tensor: Any) -> Any:
        """
        Narrow a saved tensor to what this rank needs of it. No bytes move.

        Args:
            tensor (Union[SavedTensor, torch.Tensor]): A saved tensor that fits.

        Returns:
            Union[SavedTensor, torch.Tensor]: A view of it, without padding.
        """
        return tensor

    def place(self, part: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """
        Bring what :meth:`held` chose into the form that this rank keeps.

        Args:
            part (torch.Tensor): The chosen part, in memory.
            shape (Sequence[int]): The shape of the saved tensor.

        Returns:
            torch.Tensor: This rank's part. It is ``part`` itself, or shares no memory with it.
        """
        return part

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """
        Take this rank's part of a tensor in memory.

        Args:
            tensor (torch.Tensor): A saved tensor that fits.

        Returns:
            torch.Tensor: This rank's part; it may be a view of ``tensor`` or ``tensor`` itself.
        """
        return self.place(self.held(tensor), tensor.shape)

    def is_part(self, shape: Sequence[int]) -> bool:
        """
        Tell whether state of a shape is this rank's part.

        Args:
            shape (Sequence[int]): The shape of a tensor that this rank holds.

        Returns:
            bool: Whether :meth:`join` can put it together with those of the other ranks.
        """
        return True

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """
        Put the parts of all ranks together: the inverse of :meth:`cut`.

        Args:
            parts (Sequence[torch.Tensor]): The part of each rank, in their order; each :meth:`is_part`.

        Returns:
            torch.Tensor: What they were cut from; it may be one of the parts.
        """
        raise NotImplementedError


class Replicated(Placement):
    """Every rank keeps everything."""

    @property
    def local_shape(self) -> Shape:
        return self.global_shape

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return parts[0]


class PartitionedDimension(Placement):
    """
    Tensor parallelism: the whole tensor is padded with zeros along one dimension if need be, then cut evenly along it.

    The parts of fused weights (query, key and value in one) are taken in the order of the ranks too, because that is how
    ColossalAI's hybrid parallelism saves them.

    Args:
        global_shape (Sequence[int]): The shape of the whole parameter, without padding.
        local_shape (Sequence[int]): The shape of the parameter on this rank.
        rank (int): This rank in the tensor parallel group; 0 of 1 for a parameter that is padded without being cut.
        world_size (int): The size of the tensor parallel group.
        dimension (int, optional): The dimension that is cut. Without it, the one in which the shapes differ. It has to be
            given where padding may make both shapes alike: 64 rows padded to 128 and cut in two.

    Raises:
        ValueError: If padding and an even cut along one dimension do not lead from one shape to the other.
    """

    divides = True

    def __init__(
        self,
        global_shape: Sequence[int],
        local_shape: Sequence[int],
        rank: int,
        world_size: int,
        dimension: Optional[int] = None,
    ) -> None:
        super().__init__(global_shape)
        self._local_shape: Shape = tuple(local_shape)
        self.rank = rank
        self.world_size = world_size
        self.dimension = self._differing_dimension() if dimension is None else dimension % len(self.global_shape)
        if self.dimension is not None:
            self._check()

    def _differing_dimension(self) -> Optional[int]:
        if len(self.global_shape) != len(self._local_shape):
            raise self._impossible()
        pairs = enumerate(zip(self.global_shape, self._local_shape))
        differing = [dim for dim, (whole, part) in pairs if whole != part]
        if len(differing) > 1:
            raise self._impossible()
        return differing[0] if differing else None

    def _check(self) -> None:
        dim = self.dimension
        rest, local_rest = list(self.global_shape), list(self._local_shape)
        if len(rest) != len(local_rest):
            raise self._impossible()
        whole, part = rest.pop(dim), local_rest.pop(dim)
        if rest != local_rest or part * self.world_size < whole:
            raise self._impossible()

    def _impossible(self) -> ValueError:
        text = "a parameter of shape {} cannot be the part {} of {} ranks"
        return ValueError(text.format(self.global_shape, self._local_shape, self.world_size))

    def fits_reduced(self, shape: Sequence[int]) -> bool:
        # A dimension of length one is one on every rank, and saving has put the ranks' tensors one behind the other.
        if self.dimension is None or len(shape) != len(self.global_shape):
            return False
        lengths = list(zip(shape, self.global_shape))
        length, whole = lengths.pop(self.dimension)
        return length in (whole, self.world_size) and all(one in (1, other) for one, other in lengths)

    def averaged(self, dim: int) -> Placement:
        shape, local_shape = _without(self.global_shape, dim), _without(self._local_shape, dim)
        if self.dimension is None or dim == self.dimension:
            return Replicated(shape)
        dimension = self.dimension - (dim < self.dimension)
        return PartitionedDimension(shape, local_shape, self.rank, self.world_size, dimension)

    @property
    def local_shape(self) -> Shape:
        return self._local_shape

    def held(self, tensor: Any) -> Any:
        if self.dimension is None:
            return tensor
        length = self._local_shape[self.dimension] if self._is_whole(tensor.shape) else 1
        start = min(self.rank * length, tensor.shape[self.dimension])
        stop = min(start + length, tensor.shape[self.dimension])
        return tensor.narrow(self.dimension, start, stop - start)

    def place(self, part: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        if self.dimension is None or not self._is_whole(shape):
            return part
        return padded(part, self.dimension, self._local_shape[self.dimension])

    def _is_whole(self, shape: Sequence[int]) -> bool:
        # Otherwise a dimension of length one was put together from the ranks, one element of each.
        return shape[self.dimension] == self.global_shape[self.dimension]

    def is_part(self, shape: Sequence[int]) -> bool:
        if self.dimension is None:
            return True
        local = self._local_shape
        return len(shape) == len(local) and all(one in (1, other) for one, other in zip(shape, local))

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        if self.dimension is None:
            return parts[0]
        whole = torch.cat(list(parts), dim=self.dimension)
        if parts[0].shape[self.dimension] != self._local_shape[self.dimension]:
            return whole
        return whole.narrow(self.dimension, 0, self.global_shape[self.dimension])


class FlatRange(Placement):
    """
    A range of a flattened tensor, padded with zeros where it reaches beyond the tensor's end.

    Args:
        whole (Placement): What the ranks that share the tensor hold together: ``Replicated`` without tensor parallelism.
        start (int): The first element that this rank keeps, counted in the flattened ``whole``.
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

    def held(self, tensor: Any) -> Any:
        part = self.whole.held(tensor)
        if not self._is_padded_within(part.shape) and part.is_contiguous():
            return part.reshape((part.numel(),)).narrow(0, *self._range_of(part.numel()))
        return part.narrow(0, *self._rows_of(part.shape))

    def place(self, part: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        if part.dim() > 1:
            part = self._from_rows(part)
        return padded(part, 0, self.stop - self.start)

    def _from_rows(self, part: torch.Tensor) -> torch.Tensor:
        local = self.whole.local_shape
        for dimension in range(1, len(local)):
            part = padded(part, dimension, local[dimension])
        part = part.reshape((part.numel(),))
        if part.numel() == 0:
            return part
        offset = self.start % number_of_elements(local[1:])
        length = min(self.stop - self.start, part.numel() - offset)
        # Not a view: it would keep the rows' other elements in memory.
        return part if length == part.numel() else part.narrow(0, offset, length).clone()

    def _is_padded_within(self, shape: Sequence[int]) -> bool:
        # Padding behind the last row comes last in the flattened tensor, too.
        return tuple(shape[1:]) != tuple(self.whole.local_shape[1:])

    def _range_of(self, count: int) -> Tuple[int, int]:
        start = min(self.start, count)
        return start, max(min(self.stop, count) - start, 0)

    def _rows_of(self, shape: Sequence[int]) -> Tuple[int, int]:
        row = number_of_elements(self.whole.local_shape[1:])
        if row == 0 or self.stop <= self.start:
            return 0, 0
        first = min(self.start // row, shape[0])
        return first, min(-(-self.stop // row), shape[0]) - first


class FlatSlice(FlatRange):
    """
    ZeRO: the tensor is flattened, padded with zeros to a multiple of the number of ranks, and cut into equal slices.

    Args:
        whole (Placement): What the ranks of the group hold together: ``Replicated`` for pure data parallelism.
        rank (int): This rank in the group that divides the parameter.
        world_size (int): The size of that group.
    """

    def __init__(self, whole: Placement, rank: int, world_size: int) -> None:
        length = -(-number_of_elements(whole.local_shape) // world_size)
        super().__init__(whole, rank * length, (rank + 1) * length)
        self.rank = rank
        self.world_size = world_size

    def is_part(self, shape: Sequence[int]) -> bool:
        return tuple(shape) == self.local_shape

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """
        Put the slices together.

        Args:
            parts (Sequence[torch.Tensor]): The slice of each rank, in their order.

        Returns:
            torch.Tensor: What the ranks of the group hold together, as :attr:`whole` places it.
        """
        shape = self.whole.local_shape
        return torch.cat(list(parts))[: number_of_elements(shape)].reshape(shape)


def padded(tensor: torch.Tensor, dimension: int, length: int) -> torch.Tensor:
    """
    Append zeros along one dimension.

    Args:
        tensor (torch.Tensor): Any tensor.
        dimension (int): The dimension.
        length (int): Its length afterwards.

    Returns:
        torch.Tensor: The tensor itself where it is that long already, otherwise a new one.
    """
    present = tensor.shape[dimension]
    if present >= length:
        return tensor
    shape = list(tensor.shape)
    shape[dimension] = length
    result = tensor.new_zeros(shape)
    result.narrow(dimension, 0, present).copy_(tensor)
    return result
