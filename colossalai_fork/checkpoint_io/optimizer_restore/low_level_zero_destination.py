"""A ZeRO optimizer as a destination: flat slices of every parameter."""

from typing import Optional

import torch
from colossalai.interface import OptimizerWrapper
from colossalai.zero.low_level._utils import get_nd_rank, get_nd_world_size
from torch.distributed import ProcessGroup

from .destination import Destination
from .placement import FlatSlice, Placement, Replicated

__all__ = ["LowLevelZeroDestination"]


class LowLevelZeroDestination(Destination):
    """
    A ZeRO optimizer. Its torch optimizer holds flat master slices of the working parameters.

    Args:
        optimizer (LowLevelZeroOptimizer): The boosted optimizer.
        ranks (ProcessGroup, optional): The ranks that load together.
    """

    by_position = False
    may_have_own_layout = False

    def __init__(self, optimizer: OptimizerWrapper, ranks: Optional[ProcessGroup] = None) -> None:
        super().__init__(optimizer.optim, ranks)
        self.zero_optimizer = optimizer

    def placement(self, param: torch.Tensor) -> Placement:
        """
        Tell which slice of a parameter's saved state this rank keeps.

        Args:
            param (torch.Tensor): A master slice.

        Returns:
            Placement: The slice that this rank has in the group which divides the working parameter.
        """
        working_param = self.zero_optimizer.master_to_working_param[id(param)]
        group = self.zero_optimizer.param_to_pg[working_param]
        return FlatSlice(Replicated(working_param.shape), int(get_nd_rank(group)), get_nd_world_size(group))
