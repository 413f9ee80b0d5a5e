"""Loading and saving under hybrid parallelism: data (with or without ZeRO), tensor and pipeline parallelism."""

import copy
from typing import Any, Dict, Optional, Tuple

import colossalai.checkpoint_io.hybrid_parallel_checkpoint_io as upstream
import torch
import torch.distributed as dist
from colossalai.interface import OptimizerWrapper
from torch.distributed import ProcessGroup

from .general_checkpoint_io import GeneralCheckpointIO
from .optimizer_restore.boosted import require_boosted
from .optimizer_restore.destination import Destination
from .optimizer_restore.gather import gather_parts, in_pinned_memory
from .optimizer_restore.hybrid_parallel_destination import HybridParallelDestination
from .optimizer_restore.state_kinds import is_scalar
from .optimizer_restore.tensor_parallel import tensor_parallel_placement

__all__ = ["HybridParallelCheckpointIO"]


class HybridParallelCheckpointIO(upstream.HybridParallelCheckpointIO, GeneralCheckpointIO):
    """Checkpoint IO for HybridParallelPlugin."""

    load_sharded_optimizer = GeneralCheckpointIO.load_sharded_optimizer
    load_unsharded_optimizer = GeneralCheckpointIO.load_unsharded_optimizer

    def optimizer_destination(self, optimizer: OptimizerWrapper) -> Destination:
        """Each rank holds a part of the same optimizer, or a copy of another rank's part. See GeneralCheckpointIO."""
        require_boosted(optimizer)
        return HybridParallelDestination(optimizer, self.tp_rank, self.tp_size, dist.group.WORLD)

    def optimizer_writers(self) -> Tuple[bool, Optional[ProcessGroup]]:
        """One rank of each pipeline stage writes; that of the first stage puts the index together. See GeneralCheckpointIO."""
        writes = self.dp_rank == 0 and self.tp_rank == 0 and self.sp_rank == 0
        return writes, self.pp_group if self.pp_size > 1 else None

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
        Put the parts together that ranks hold of one parameter's state.

        Must be called on every rank of ``tp_group`` and, with ZeRO, of ``dp_group``.

        Args:
            state (Dict[str, Any]): What this rank holds: elementwise state as tensors of its part's shape, or flat slices of
                that with ZeRO; the rest whole.
            param (torch.Tensor): The working parameter, which knows how tensor parallelism cuts it.
            original_shape (torch.Size): The parameter's shape before it was cut.
            dp_group (ProcessGroup): The data parallel ranks, among which ZeRO divides state.
            tp_group (ProcessGroup): The tensor parallel ranks.
            use_zero (bool): Whether ZeRO divides the state.
            inplace (bool): Whether to put the result into ``state`` rather than into a new dictionary.
            device (torch.device): Where to put tensors.
            pinned_state_dicts (Dict[str, torch.Tensor], optional): Pinned buffers by state name, made on first use.

        Returns:
            Dict[str, Any]: The whole state. Its tensors alias neither what ``state`` held nor each other.

        Raises:
            ValueError: If a state is neither one number nor cut as the parameter is. Every rank raises it.
        """
        placement = tensor_parallel_placement(
            param, original_shape, dist.get_rank(tp_group), dist.get_world_size(tp_group)
        )
        whole_state = gather_parts(state, placement, tp_group, dp_group if use_zero else None)
        result = state if inplace else {}
        for key, value in whole_state.items():
            if pinned_state_dicts is not None and not is_scalar(key, value):
                result[key] = in_pinned_memory(pinned_state_dicts, key, value)
            elif isinstance(value, torch.Tensor):
                result[key] = value.detach().to(device, copy=True)
            else:
                result[key] = copy.deepcopy(value)
        return result
