"""Loading and saving under hybrid parallelism: data (with or without ZeRO), tensor and pipeline parallelism."""

import copy
from typing import Any, Dict, Optional

import colossalai.checkpoint_io.hybrid_parallel_checkpoint_io as upstream
import torch
import torch.distributed as dist
from colossalai.interface import OptimizerWrapper
from torch.distributed import ProcessGroup

from .destination import Destination
from .gather import gather_state
from .general_checkpoint_io import GeneralCheckpointIO
from .hybrid_parallel_destination import HybridParallelDestination
from .tensor_parallel import tensor_parallel_placement

__all__ = ["HybridParallelCheckpointIO"]


class HybridParallelCheckpointIO(upstream.HybridParallelCheckpointIO, GeneralCheckpointIO):
    """Checkpoint IO for HybridParallelPlugin."""

    load_sharded_optimizer = GeneralCheckpointIO.load_sharded_optimizer
    load_unsharded_optimizer = GeneralCheckpointIO.load_unsharded_optimizer

    def optimizer_destination(self, optimizer: OptimizerWrapper) -> Destination:
        """
        Args:
            optimizer (OptimizerWrapper): The boosted optimizer.

        Returns:
            Destination: Which saved parameter belongs to which of its parameters, and which part of it this rank keeps.
        """
        assert isinstance(optimizer, OptimizerWrapper), "Please boost the optimizer before loading!"
        return HybridParallelDestination(optimizer, self.tp_rank, self.tp_size)

    def loading_group(self) -> ProcessGroup:
        """
        Returns:
            ProcessGroup: All ranks: each holds a part of the same optimizer, or a copy of another rank's part.
        """
        return dist.group.WORLD

    @staticmethod
    def gather_from_sharded_optimizer_state(
        state: Dict[str, Any],
        param: torch.Tensor,
        original_shape: torch.Size,
        dp_group: ProcessGroup,
        tp_group: ProcessGroup,
        use_zero: bool,
        inplace: bool,
        device: torch.device = torch.device("cpu"),
        pinned_state_dicts: Optional[Dict[str, torch.Tensor]] = None,
    ) -> Dict[str, Any]:
        """
        With given parameter and its optimizer states, gather the complete optimizer state for saving.

        Must be called on every rank of ``tp_group`` and, with ZeRO, of ``dp_group``.

        Args:
            state (Dict[str, Any]): Optimizer states of given parameter, might be distributed among tp/dp group.
            param (torch.Tensor): The given parameter. It should be working_param when using Zero.
            original_shape (torch.Size): The size of parameter before sharding.
            dp_group (ProcessGroup): The process group of data parallel.
            tp_group (ProcessGroup): The process group of tensor parallel.
            use_zero (bool): Whether Zero is used.
            inplace (bool): If set to True, will update the values of argument 'state' in place. Else will make a copy of state.
            device (torch.device): The destination device of loaded optimizer states. Defaults to torch.device('cpu').
            pinned_state_dicts (Dict[str, torch.Tensor], optional): Pinned buffers by state name, made on first use.

        Returns:
            Dict[str, Any]: The complete optimizer state of given parameter. Its tensors alias neither ``state`` nor each other.

        Raises:
            ValueError: If a state is neither one number nor cut as the parameter is. Every rank raises it.
        """
        placement = tensor_parallel_placement(
            param, original_shape, dist.get_rank(tp_group), dist.get_world_size(tp_group)
        )
        whole_state = gather_state(state, placement, tp_group, dp_group if use_zero else None)
        result = state if inplace else {}
        for key, value in whole_state.items():
            if isinstance(value, torch.Tensor) and value.dim() > 0 and key != "step" and pinned_state_dicts is not None:
                if key not in pinned_state_dicts:
                    pinned_state_dicts[key] = torch.empty_like(value, pin_memory=True, device="cpu")
                result[key] = pinned_state_dicts[key].copy_(value)
            elif isinstance(value, torch.Tensor):
                result[key] = value.detach().to(device, copy=True)
            else:
                result[key] = copy.deepcopy(value)
        return result
