"""What a case needs of a configuration. Where that is not given, the case would mean nothing, and no test is made of it."""

import dataclasses
import sys
from typing import Any, Callable

from .checkpoint_files import is_sharded


@dataclasses.dataclass(frozen=True)
class Need:
    """A condition that is known before a case runs.

    Attributes:
        reason (str): why the case does not apply otherwise.
        met (Callable[[Any, dict], object]): given the contract and the arguments of the case, whether it applies.
    """

    reason: str
    met: Callable[[Any, dict], object]


def torch_takes_names() -> bool:
    """Tell whether optimizers can be given names of parameters.

    Returns:
        bool: whether they can; before 2.6 they could not.
    """
    import torch

    try:
        torch.optim.SGD([("weight", torch.nn.Parameter(torch.zeros(1)))], lr=0.1)
    except TypeError:
        return False
    return True


LOADS_TOGETHER = Need(
    "the ranks do not load together", lambda contract, _: contract.distributed and contract.world_size > 1
)
ANOTHER_RANK = Need("there is no other rank", lambda contract, _: contract.world_size > 1)
FIRES_HOOKS = Need("the class does not load through torch", lambda contract, _: contract.fires_hooks)
IDS_ARE_LABELS = Need("this class has ids of its own", lambda contract, _: contract.by_position)
WHOLE_TENSORS = Need("nobody knows which part of them is this rank's", lambda contract, _: contract.whole_tensors)
CUT_TENSORS = Need("this rank has whole tensors", lambda contract, _: not contract.whole_tensors)
ROWS_AND_COLUMNS = Need("what is cut flat has no rows", lambda contract, _: contract.has_rows_and_columns)
NO_ROWS_AND_COLUMNS = Need(
    "what this rank has has rows and columns still", lambda contract, _: not contract.has_rows_and_columns
)
NO_NAMES = "this torch has no names of parameters, or the class keeps none"
KEEPS_NAMES = Need(NO_NAMES, lambda contract, _: contract.keeps_names and torch_takes_names())
SEVERAL_GROUPS = Need("the configuration has one group", lambda contract, _: len(contract.recipe().groups) > 1)
LINUX = Need("what a process reads and holds is known on Linux only", lambda contract, _: sys.platform == "linux")
LOADS_SHARDS = Need("the class loads no shards", lambda contract, _: "torch-sharded" in contract.layouts)
A_FILE_OF_ITS_OWN = Need(
    "this layout is one file", lambda _, arguments: arguments["part"] == "shard" or is_sharded(arguments["layout"])
)
