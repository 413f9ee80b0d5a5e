"""An optimizer under hybrid parallelism as a destination: pipeline stages, tensor parallelism and ZeRO."""

from typing import Any, Dict, List, Optional

import torch
from colossalai.interface import OptimizerWrapper
from colossalai.zero.low_level._utils import get_nd_rank, get_nd_world_size
from torch.distributed import ProcessGroup

from .destination import Destination, check_group_sizes
from .errors import Problem
from .placement import FlatSlice, Placement
from .tensor_parallel import tensor_parallel_placement

__all__ = ["HybridParallelDestination"]


class HybridParallelDestination(Destination):
    """
    An optimizer of the hybrid parallel plugin. Its torch optimizer holds the parameters of this pipeline stage, or master
    copies of them, or flat slices of such copies.

    Args:
        optimizer (OptimizerWrapper): The boosted optimizer. It keeps a record of the groups, ids and shapes that the
            optimizer was built with before the plugin distributed it.
        tp_rank (int): This rank in the tensor parallel group.
        tp_size (int): The size of the tensor parallel group.
        ranks (ProcessGroup, optional): The ranks that load together.
    """

    by_position = False
    may_have_own_layout = False

    def __init__(
        self, optimizer: OptimizerWrapper, tp_rank: int, tp_size: int, ranks: Optional[ProcessGroup] = None
    ) -> None:
        super().__init__(optimizer.optim, ranks)
        self.tp_rank = tp_rank
        self.tp_size = tp_size
        self._record = optimizer.param_info
        self._master_to_working = optimizer.get_master_to_working_map()
        # ZeRO alone divides parameters among the ranks of a group.
        self._dividing_groups = getattr(optimizer, "param_to_pg", None)

    def working_param(self, param: torch.Tensor) -> torch.Tensor:
        """
        Find the working parameter of a master parameter.

        Args:
            param (torch.Tensor): One of the torch optimizer's parameters.

        Returns:
            torch.Tensor: The parameter of the model that it stands for.
        """
        return param if self._master_to_working is None else self._master_to_working[id(param)]

    def placement(self, param: torch.Tensor) -> Placement:
        """
        Tell which part of a parameter's saved state this rank keeps.

        Args:
            param (torch.Tensor): One of the torch optimizer's parameters.

        Returns:
            Placement: The tensor parallel part of the parameter, or this rank's slice of it.
        """
        working_param = self.working_param(param)
        global_shape = self._record["param2shape"][id(working_param)]
        placement = tensor_parallel_placement(working_param, global_shape, self.tp_rank, self.tp_size)
        if self._dividing_groups is not None:
            group = self._dividing_groups[working_param]
            placement = FlatSlice(placement, int(get_nd_rank(group)), get_nd_world_size(group))
        if placement.local_shape != tuple(param.shape):
            raise ValueError(
                "the state of a parameter of shape {} cannot be cut to {}".format(global_shape, tuple(param.shape))
            )
        return placement

    def local_groups(
        self, groups: List[Dict[str, Any]], source: str, problems: List[Problem]
    ) -> Optional[List[Dict[str, Any]]]:
        """
        Choose the saved ids of the parameters of this pipeline stage.

        Args:
            groups (List[Dict[str, Any]]): The saved groups, which hold the ids of all stages.
            source (str): What to call their place in messages.
            problems (List[Problem]): Added to if the groups are not those that the optimizer was built with.

        Returns:
            Optional[List[Dict[str, Any]]]: One group for each of the optimizer's; None if they do not fit.
        """
        built_with = [group["params"] for group in self._record["param_groups"]]
        if not check_group_sizes([len(ids) for ids in built_with], groups, source, problems):
            return None
        fits = True
        for position, (ids, saved) in enumerate(zip(built_with, groups)):
            pairs = [(own, found) for own, found in zip(ids, saved["params"]) if own != found]
            if pairs:
                text = "parameter group {} holds other parameters".format(position)
                expected, found = ("ids {}".format(list(side[:5])) for side in zip(*pairs))
                problems.append(Problem(text, False, source, expected=expected, found=found))
                fits = False
        if not fits:
            return None
        chosen = []
        for position, present in enumerate(self.optimizer.param_groups):
            # A group that the wrapper has added, such as one of experts, is not on record and keeps its hyperparameters.
            group = groups[position] if position < len(groups) else present
            chosen.append({**group, "params": [self._saved_id(param) for param in present["params"]]})
        return chosen

    def _saved_id(self, param: torch.Tensor) -> int:
        return self._record["param2id"][id(self.working_param(param))]
