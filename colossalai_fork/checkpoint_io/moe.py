"""Loading and saving for mixtures of experts: hybrid parallelism whose experts have data parallel groups of their own."""

import copy
from typing import Any, Dict, List, Optional, Tuple

import colossalai.checkpoint_io.moe_checkpoint as upstream
import torch
import torch.distributed as dist
from colossalai.checkpoint_io.utils import save_state_dict
from colossalai.interface import OptimizerWrapper
from colossalai.tensor.moe_tensor.api import is_moe_tensor
from torch.distributed import ProcessGroup

from .general_checkpoint_io import GeneralCheckpointIO
from .hybrid_parallel import HybridParallelCheckpointIO
from .optimizer_restore.boosted import require_boosted
from .optimizer_restore.destination import Destination
from .optimizer_restore.gather import gather_parts
from .optimizer_restore.moe_destination import MoEDestination
from .optimizer_restore.tensor_parallel import tensor_parallel_placement

__all__ = ["MoECheckpointIO"]


class MoECheckpointIO(upstream.MoECheckpointIO, HybridParallelCheckpointIO):
    """Checkpoint IO for MoeHybridParallelPlugin."""

    load_sharded_optimizer = GeneralCheckpointIO.load_sharded_optimizer
    load_unsharded_optimizer = GeneralCheckpointIO.load_unsharded_optimizer

    def optimizer_destination(self, optimizer: OptimizerWrapper) -> Destination:
        """Each rank holds a part of the same optimizer, or a copy of another rank's part. See GeneralCheckpointIO."""
        require_boosted(optimizer)
        return MoEDestination(optimizer, self.tp_rank, self.tp_size, dist.group.WORLD)

    def optimizer_writers(self) -> Tuple[bool, Optional[ProcessGroup]]:
        """One rank of each pipeline stage and expert rank writes; they meet with all others. See GeneralCheckpointIO."""
        if self.pp_size > 1 or self.ep_size > 1:
            return True, dist.group.WORLD
        return self.tp_rank == 0 and self.moe_dp_rank == 0 and self.sp_rank == 0, None

    @staticmethod
    def gather_from_sharded_optimizer_state(
        state: Dict[str, Any],
        param: torch.Tensor,
        original_shape: torch.Size,
        global_dp_group: ProcessGroup,
        tp_group: ProcessGroup,
        use_zero: bool,
        inplace: bool,
        is_moe_param: bool,
        moe_dp_group: Optional[ProcessGroup] = None,
        device: torch.device = torch.device("cpu"),
    ) -> Dict[str, Any]:
        """
        Put the parts together that ranks hold of one parameter's state.

        Must be called on every rank of ``tp_group`` and, with ZeRO, of the group that divides the parameter.

        Args:
            state (Dict[str, Any]): What this rank holds; see HybridParallelCheckpointIO.
            param (torch.Tensor): The working parameter, which knows how tensor parallelism cuts it.
            original_shape (torch.Size): The parameter's shape before it was cut.
            global_dp_group (ProcessGroup): The data parallel ranks, among which ZeRO divides the state of what is no expert's.
            tp_group (ProcessGroup): The tensor parallel ranks.
            use_zero (bool): Whether ZeRO divides the state.
            inplace (bool): Whether to put the result into ``state`` rather than into a new dictionary.
            is_moe_param (bool): Whether the parameter is an expert's, which ``moe_dp_group`` divides.
            moe_dp_group (ProcessGroup, optional): The ranks that hold the same experts. Without one there are no others.
            device (torch.device): Where to put tensors.

        Returns:
            Dict[str, Any]: The whole state on the first rank of each group; on others as much as they know.

        Raises:
            ValueError: If a state is neither one number nor cut as the parameter is. Every rank raises it.
        """
        placement = tensor_parallel_placement(
            param, original_shape, dist.get_rank(tp_group), dist.get_world_size(tp_group)
        )
        zero_group = moe_dp_group if is_moe_param else global_dp_group
        whole_state = gather_parts(state, placement, tp_group, zero_group if use_zero else None, everywhere=False)
        result = state if inplace else {}
        for key, value in whole_state.items():
            is_tensor = isinstance(value, torch.Tensor)
            result[key] = value.detach().to(device, copy=True) if is_tensor else copy.deepcopy(value)
        return result

    def save_unsharded_optimizer(
        self,
        optimizer: OptimizerWrapper,
        checkpoint: str,
        gather_dtensor: bool,
        use_async: bool = False,
    ) -> None:
        """
        Save the optimizer into one file, in the layout of native ``state_dict``: whole tensors by the ids that parameters had
        before they were distributed. Must be called on every rank; the master writes.

        Args:
            optimizer (OptimizerWrapper): The boosted optimizer.
            checkpoint (str): Path of the file.
            gather_dtensor (bool): Not used: tensors are always gathered.
            use_async (bool): Not used: the file is complete when this returns.
        """
        require_boosted(optimizer)
        info = optimizer.param_info
        master_to_working = optimizer.get_master_to_working_map()
        states: Dict[int, Any] = {}
        for param, state in optimizer.optim.state.items():
            working_param = param if master_to_working is None else master_to_working[id(param)]
            is_moe_param = is_moe_tensor(working_param)
            whole_state = self.gather_from_sharded_optimizer_state(
                state,
                working_param,
                original_shape=info["param2shape"][id(working_param)],
                global_dp_group=self.global_dp_group,
                tp_group=self.tp_group,
                use_zero=self.use_zero,
                inplace=False,
                is_moe_param=is_moe_param,
                moe_dp_group=self.moe_dp_group,
            )
            data_parallel_rank = self.moe_dp_rank if is_moe_param else self.global_dp_rank
            if data_parallel_rank == 0 and self.tp_rank == 0 and self.sp_rank == 0:
                states[info["param2id"][id(working_param)]] = whole_state
        is_master = dist.get_rank() == 0
        of_ranks: Optional[List[Dict[int, Any]]] = [{} for _ in range(dist.get_world_size())] if is_master else None
        dist.gather_object(states, of_ranks, dst=0)
        if is_master:
            # A parameter that two pipeline stages share has the same state in both.
            merged = {param_id: state for states in of_ranks for param_id, state in states.items()}
            groups = [
                {**group, "params": recorded["params"]}
                for group, recorded in zip(optimizer.param_groups, info["param_groups"])
            ]
            state_dict = {"state": dict(sorted(merged.items())), "param_groups": groups}
            save_state_dict(state_dict, checkpoint, use_safetensors=False)
        dist.barrier()
