"""Read all bytes of a checkpoint: compare checksums, and look for numbers that no training goes on from."""

import collections
from typing import Any, Callable

import torch

from ..checkpoint_io.optimizer_restore.errors import Problem
from ..checkpoint_io.optimizer_restore.files.contents import altered_contents
from ..checkpoint_io.optimizer_restore.files.reading import read
from ..checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor
from .opened import Checkpoint

REMEDY = "Take a checkpoint from before the training diverged"


def problems_in_contents(checkpoint: Checkpoint, advance: Callable[[int], None] = lambda count: None) -> list[Problem]:
    """Read all bytes.

    Args:
        checkpoint (Checkpoint): the checkpoint.
        advance (Callable[[int], None]): told how many bytes have been read since the last call.

    Returns:
        list[Problem]: what is not as it was saved, and every state that holds NaN or infinity.
    """
    look = _NotFinite()
    problems = altered_contents(checkpoint.saved, checkpoint.readable_shards(), look, advance)
    return problems + look.problems()


class _NotFinite:
    """Counts numbers that are not finite, in pieces of tensors as they come from the files."""

    def __init__(self) -> None:
        self._counts = collections.Counter()
        self._paths = {}
        self._with_gaps = {}

    def __call__(self, name: tuple[Any, Any], tensor: SavedTensor, data: memoryview) -> None:
        dtype = tensor.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            return
        reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride))
        if reach >= tensor.numel():
            # Numbers between those of the tensor are nobody's. So rare that reading it again does no harm.
            self._with_gaps[id(tensor)] = name, tensor
            return
        self._count(name, tensor, torch.frombuffer(data, dtype=torch.uint8))

    def _count(self, name: tuple[Any, Any], tensor: SavedTensor, numbers: torch.Tensor) -> None:
        dtype = tensor.dtype
        try:
            numbers = numbers.view(dtype)
        except RuntimeError:  # not where the processor likes numbers of this size
            numbers = numbers.clone().view(dtype)
        if dtype.itemsize == 1:
            numbers = numbers.to(torch.float32)
        # One pass instead of two: a sum of finite numbers is finite, but for an overflow.
        if torch.isfinite(numbers.sum()):
            return
        for kind, found in (("NaN", torch.isnan(numbers)), ("infinity", torch.isinf(numbers))):
            count = int(found.sum())
            if count:
                self._counts[name, kind] += count
                self._paths[name] = tensor.source.path

    def problems(self) -> list[Problem]:
        """Return a problem for each state and kind of number."""
        for name, tensor in self._with_gaps.values():
            self._count(name, tensor, read([tensor])[0].detach().contiguous().view(-1).view(torch.uint8))
        return [
            Problem(
                f"the state holds {kind} ({count:,} of its numbers)", False, self._paths[name], *name, remedy=REMEDY
            )
            for (name, kind), count in self._counts.items()
        ]
