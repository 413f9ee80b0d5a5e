"""Gemini's optimizer as a destination: parameters laid into chunks, of which each rank steps a slice."""

from typing import Any, Dict, List, Optional

import torch
from colossalai.interface import OptimizerWrapper
from colossalai.tensor.d_tensor import is_customized_distributed_tensor
from torch.distributed import ProcessGroup

from .destination import Destination, check_group_sizes
from .errors import Problem
from .gemini_placement import CustomPartition, CustomRange
from .placement import FlatRange, Placement, Replicated
from .tensor_parallel import tensor_parallel_placement

__all__ = ["GeminiDestination"]

# What torch's Adam does without having an option for it. Its files are meant to fit ColossalAI's Adam, which has one.
_ALWAYS_DONE_BY_TORCH = {"bias_correction": True}


class GeminiDestination(Destination):
    """
    A Gemini optimizer. Its torch optimizer holds a stand-in for each parameter of which this rank has a part; the stand-in
    is empty between steps, so shapes come from the parameter that it stands for.

    Args:
        optimizer (GeminiOptimizer): The boosted optimizer.
        ranks (ProcessGroup, optional): The ranks that load together.
    """

    by_position = False
    may_have_own_layout = False
    empty_is_absent = True

    def __init__(self, optimizer: OptimizerWrapper, ranks: Optional[ProcessGroup] = None) -> None:
        super().__init__(optimizer.optim, ranks)
        self.gemini_optimizer = optimizer
        self._ids = {id(fake_param): param_id for param_id, fake_param in optimizer.id_to_fake_params.items()}

    def for_local_state(self) -> Destination:
        """
        Give the destination that state already cut to this rank's ranges is validated against.

        Returns:
            Destination: The same optimizer, for state that has been cut to this rank's ranges.
        """
        return _LocalState(self)

    def state_dtype(self, param: torch.Tensor) -> torch.dtype:
        """
        Tell the dtype of the chunk that is stepped.

        Args:
            param (torch.Tensor): A stand-in.

        Returns:
            torch.dtype: The dtype of the chunk that is stepped. The stand-in has it only from the first step on.
        """
        chunk = self.gemini_optimizer.param_to_chunk16[param]
        return (chunk.paired_chunk if self.gemini_optimizer.module.master_weights else chunk).dtype

    def placement(self, param: torch.Tensor) -> Placement:
        """
        Tell which range of a parameter's state this rank keeps.

        Args:
            param (torch.Tensor): A stand-in.

        Returns:
            Placement: The range of the parameter's elements, after the tensor-parallel cut, that lies in this rank's slice
                of the chunk.
        """
        param_id = self._ids[id(param)]
        _, start, length = self.gemini_optimizer.get_offsets(param_id)
        whole = self._tensor_parallel_part(param_id)
        kind = CustomRange if isinstance(whole, CustomPartition) else FlatRange
        return kind(whole, start, start + length)

    def _tensor_parallel_part(self, param_id: int) -> Placement:
        param = self.gemini_optimizer.id_to_real_params[param_id]
        global_shape = self.gemini_optimizer.params_info["id2shape"][param_id]
        if is_customized_distributed_tensor(param):
            return CustomPartition(global_shape, param.shape, param.shard_fn)
        rank, size = self.gemini_optimizer.tp_rank, self.gemini_optimizer.tp_size
        return tensor_parallel_placement(param, global_shape, rank, size)

    def local_groups(
        self, groups: List[Dict[str, Any]], source: str, problems: List[Problem]
    ) -> Optional[List[Dict[str, Any]]]:
        """
        Choose the saved ids of the parameters of which this rank has a part.

        Args:
            groups (List[Dict[str, Any]]): The saved groups.
            source (str): What to call their place in messages.
            problems (List[Problem]): Added to if the groups are not like those that the optimizer was built with.

        Returns:
            Optional[List[Dict[str, Any]]]: One group for each of the optimizer's; None if they do not fit.
        """
        built_with = [group["params"] for group in self.gemini_optimizer.param_groups_backup]
        if not check_group_sizes([len(ids) for ids in built_with], groups, source, problems):
            return None
        held = self.gemini_optimizer.id_to_fake_params
        return [
            {
                **_ALWAYS_DONE_BY_TORCH,
                **saved,
                "params": [saved_id for own_id, saved_id in zip(ids, saved["params"]) if own_id in held],
            }
            for ids, saved in zip(built_with, groups)
        ]


class _LocalState(Destination):
    """
    A Gemini optimizer, for state whose tensors are this rank's ranges.

    Args:
        whole (GeminiDestination): The optimizer.
    """

    empty_is_absent = True

    def __init__(self, whole: GeminiDestination) -> None:
        super().__init__(whole.optimizer, whole.ranks)
        self._whole = whole

    def state_dtype(self, param: torch.Tensor) -> torch.dtype:
        return self._whole.state_dtype(param)

    def placement(self, param: torch.Tensor) -> Placement:
        return Replicated(self._whole.placement(param).local_shape)
