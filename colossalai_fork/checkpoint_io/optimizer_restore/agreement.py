"""Ranks agree on an outcome before any of them acts on it."""

from typing import List, Optional

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from .errors import MAX_PROBLEMS_PRINTED, Problem

__all__ = ["agree"]


def _device_of(group: ProcessGroup) -> torch.device:
    # gloo moves host tensors, everything else moves those of its own accelerator.
    if "gloo" in dist.get_backend(group):
        return torch.device("cpu")
    from colossalai.accelerator import get_accelerator

    return torch.device(get_accelerator().get_current_device())


def agree(problems: List[Problem], group: Optional[ProcessGroup] = None, digest: int = 0) -> List[Problem]:
    """
    Tell every rank of a group what went wrong on any of them.

    Costs one all-reduce of three integers if nothing went wrong. Must be called by every rank of ``group``, whatever
    happened to it before.

    Args:
        problems (List[Problem]): What went wrong on this rank.
        group (ProcessGroup, optional): The ranks that act together. Without one this rank is alone.
        digest (int, optional): A number below 2**62 made from what was read, which ranks without problems share.

    Returns:
        List[Problem]: The problems of all ranks, each with its rank; empty if every rank may go on.
    """
    if group is None or not dist.is_initialized():
        return problems
    mine = torch.tensor([int(len(problems) > 0), digest, -digest], dtype=torch.int64, device=_device_of(group))
    dist.all_reduce(mine, op=dist.ReduceOp.MAX, group=group)
    failed, largest, smallest = mine.tolist()
    if not failed:
        if largest == -smallest:
            return []
        problems = [Problem("this rank read another checkpoint than other ranks", damaged=True)]
    rank = dist.get_rank()
    for problem in problems:
        problem.rank = rank
    gathered: List[List[Problem]] = [[] for _ in range(dist.get_world_size(group))]
    # Each rank may have as many problems as there are parameters, and nobody reads that many.
    dist.all_gather_object(gathered, problems[:MAX_PROBLEMS_PRINTED], group=group)
    return [problem for of_rank in gathered for problem in of_rank]
