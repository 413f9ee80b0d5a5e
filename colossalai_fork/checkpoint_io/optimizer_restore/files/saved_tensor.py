"""A tensor in a file: what it is and where it lies, without its bytes."""

from math import prod
from typing import Any, Optional, Sequence, Tuple

import torch

__all__ = ["SavedTensor", "contiguous_stride"]


def contiguous_stride(shape: Sequence[int]) -> Tuple[int, ...]:
    """
    Work out the strides of a contiguous tensor.

    Args:
        shape (Sequence[int]): The shape of a tensor.

    Returns:
        Tuple[int, ...]: The strides, in elements, that a contiguous tensor of this shape has.
    """
    stride = []
    step = 1
    for length in reversed(shape):
        stride.append(step)
        step *= max(length, 1)
    return tuple(reversed(stride))


_ONE_BY_ONE = (1,)


class SavedTensor:
    """
    A view of a tensor in a file. Holds no bytes; :func:`~.reading.read` gives them. Not to be changed once made.

    Args:
        source (Any): The file, or the bytes in memory, that hold the elements; None if ``refusal`` says why not.
        offset (int): The number of bytes in the source before the first element.
        dtype (torch.dtype): The kind of the elements.
        shape (Tuple[int, ...]): The shape.
        stride (Tuple[int, ...]): The strides, in elements.
        refusal (str, optional): Why it cannot be copied into memory, e.g. "it is on the meta device".
        requires_grad (bool, optional): Whether the saved tensor was one that gradients are computed for.
        is_parameter (bool, optional): Whether the saved tensor was a ``torch.nn.Parameter``.
    """

    __slots__ = ("source", "offset", "dtype", "shape", "stride", "refusal", "requires_grad", "is_parameter")

    def __init__(
        self,
        source: Any,
        offset: int,
        dtype: torch.dtype,
        shape: Tuple[int, ...],
        stride: Tuple[int, ...],
        refusal: Optional[str] = None,
        requires_grad: bool = False,
        is_parameter: bool = False,
    ) -> None:
        self.source = source
        self.offset = offset
        self.dtype = dtype
        self.shape = shape
        self.stride = stride
        self.refusal = refusal
        self.requires_grad = requires_grad
        self.is_parameter = is_parameter

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    def nbytes(self) -> int:
        """Return the number of bytes that a copy takes."""
        return prod(self.shape) * self.dtype.itemsize

    def is_contiguous(self) -> bool:
        """Return whether the elements lie one after another, in order."""
        if self.stride == _ONE_BY_ONE:
            return True
        step = 1
        for length, stride in zip(reversed(self.shape), reversed(self.stride)):
            if length != 1:
                if stride != step:
                    return prod(self.shape) == 0
                step *= length
        return True

    def narrow(self, dimension: int, start: int, length: int) -> "SavedTensor":
        """
        View a range of one dimension.

        Args:
            dimension (int): The dimension to take a range of.
            start (int): The first index.
            length (int): The number of indices.

        Returns:
            SavedTensor: A view of that range, as ``torch.Tensor.narrow`` gives it.

        Raises:
            IndexError: If the tensor does not have that range.
        """
        if not 0 <= dimension < len(self.shape) or not 0 <= start <= start + length <= self.shape[dimension]:
            text = "no range of {} from {} in dimension {} of a tensor of shape {}"
            raise IndexError(text.format(length, start, dimension, self.shape))
        shape = self.shape[:dimension] + (length,) + self.shape[dimension + 1 :]
        return self._view(shape, self.stride, self.offset + start * self.stride[dimension] * self.dtype.itemsize)

    def flat(self) -> "SavedTensor":
        """
        View a contiguous tensor as a vector.

        Returns:
            SavedTensor: A view of one dimension.

        Raises:
            ValueError: If the tensor is not contiguous.
        """
        return self.reshape((self.numel(),))

    def reshape(self, shape: Sequence[int]) -> "SavedTensor":
        """
        View a contiguous tensor in another shape.

        Args:
            shape (Sequence[int]): A shape of as many elements.

        Returns:
            SavedTensor: A view of that shape.

        Raises:
            ValueError: If the tensor is not contiguous, or has another number of elements.
        """
        shape = tuple(shape)
        if prod(shape) != self.numel() or min(shape, default=0) < 0:
            raise ValueError("a tensor of shape {} does not have the shape {}".format(self.shape, shape))
        if not self.is_contiguous():
            raise ValueError("a tensor of shape {} and stride {} is not contiguous".format(self.shape, self.stride))
        return self._view(shape, contiguous_stride(shape), self.offset)

    def _view(self, shape: Tuple[int, ...], stride: Tuple[int, ...], offset: int) -> "SavedTensor":
        marks = (self.refusal, self.requires_grad, self.is_parameter)
        return SavedTensor(self.source, offset, self.dtype, shape, stride, *marks)

    def __deepcopy__(self, memo: Any) -> "SavedTensor":
        # The file is not copied, and nothing else is there to be shared.
        return self

    def __repr__(self) -> str:
        return "SavedTensor(shape={}, dtype={})".format(self.shape, self.dtype)
