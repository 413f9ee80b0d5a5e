"""Ranks agree on an outcome before any of them acts on it."""

import zlib
from typing import Any, List, Optional

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from .errors import MAX_PROBLEMS_PRINTED, Problem
from .files.saved_tensor import SavedTensor

__all__ = ["AgreementError", "VALIDATED", "LOADED", "agree", "fingerprint"]

# What ranks can agree on, in this order. An interrupted rank may begin again while others are further on.
VALIDATED, LOADED = 1, 2


class AgreementError(Exception):
    """
    The ranks could not be asked, or are not at the same point.

    Args:
        problem (Problem): Why.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def agree(problems: List[Problem], point: int, group: Optional[ProcessGroup] = None, digest: int = 0) -> List[Problem]:
    """
    Tell every rank of a group what went wrong on any of them.

    Costs one all-reduce of five integers if nothing went wrong. Must be called by every rank of ``group``, whatever
    happened to it before.

    Args:
        problems (List[Problem]): What went wrong on this rank.
        point (int): What this rank wants to agree on: ``VALIDATED`` or ``LOADED``.
        group (ProcessGroup, optional): The ranks that act together. Without one this rank is alone.
        digest (int, optional): A number below 2**62 made from what was read, which ranks without problems share.

    Returns:
        List[Problem]: The problems of all ranks, each with its rank; empty if every rank may go on.

    Raises:
        AgreementError: If a rank cannot be reached within the group's timeout, or is at another point of a load.
    """
    if group is None or not dist.is_initialized():
        return problems
    try:
        return _gathered(problems, point, group, digest)
    except AgreementError:
        raise
    except Exception as error:
        text = "the ranks could not agree, so a rank has ended, was not called, or cannot be reached ({}: {})"
        remedy = "All ranks of the group must load together. Start them anew if one of them has ended"
        problem = Problem(text.format(type(error).__name__, error), damaged=True, remedy=remedy)
        problem.rank = dist.get_rank()
        raise AgreementError(problem) from error


def _gathered(problems: List[Problem], point: int, group: ProcessGroup, digest: int) -> List[Problem]:
    mine = torch.tensor([int(len(problems) > 0), point, -point, digest, -digest], device=_device_of(group))
    dist.all_reduce(mine, op=dist.ReduceOp.MAX, group=group)
    failed, last, first, largest, smallest = mine.tolist()
    rank = dist.get_rank()
    if last != -first:
        text = "the ranks are at different points of loading: one of them was interrupted, and has begun again"
        problem = Problem(text, damaged=True, remedy="Load again, on all ranks")
        problem.rank = rank
        raise AgreementError(problem)
    if not failed:
        if largest == -smallest:
            return []
        problems = [Problem("this rank read another checkpoint than other ranks", damaged=True)]
    for problem in problems:
        problem.rank = rank
    gathered: List[List[Problem]] = [[] for _ in range(dist.get_world_size(group))]
    # Each rank may have as many problems as there are parameters, and nobody reads that many.
    dist.all_gather_object(gathered, problems[:MAX_PROBLEMS_PRINTED], group=group)
    return [problem for of_rank in gathered for problem in of_rank]


def _device_of(group: ProcessGroup) -> torch.device:
    # gloo moves host tensors, everything else moves those of its own accelerator.
    if "gloo" in dist.get_backend(group):
        return torch.device("cpu")
    from colossalai.accelerator import get_accelerator

    return torch.device(get_accelerator().get_current_device())


def fingerprint(value: Any) -> int:
    """
    Condense a value to a number that ranks can compare.

    Args:
        value (Any): Plain data.

    Returns:
        int: A number that is the same on all ranks for what is equal.
    """
    return zlib.crc32(repr(_comparable(value)).encode(errors="backslashreplace"))


def _comparable(value: Any) -> Any:
    # No order of a set, no address of an object, no device of a tensor.
    if isinstance(value, SavedTensor):
        return str(value.dtype), value.shape
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().cpu().tolist()
    if isinstance(value, dict):
        return [(key, _comparable(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted(repr(_comparable(item)) for item in value)
    if isinstance(value, (list, tuple)):
        # Lists of ids are long.
        return list(value) if set(map(type, value)) <= {int, str} else [_comparable(item) for item in value]
    return type(value).__name__ if callable(value) or type(value).__repr__ is object.__repr__ else repr(value)
