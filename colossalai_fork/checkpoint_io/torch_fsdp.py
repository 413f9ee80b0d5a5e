"""Loading for FSDP: the torch optimizer holds slices of flat parameters, each made of several of the model's."""

from typing import Optional, Tuple

import colossalai.booster.plugin.torch_fsdp_plugin as upstream
import torch.distributed as dist
from colossalai.interface import OptimizerWrapper
from torch.distributed import ProcessGroup

from .general_checkpoint_io import GeneralCheckpointIO
from .optimizer_restore.boosted import require_boosted
from .optimizer_restore.destination import Destination
from .optimizer_restore.fsdp_destination import FSDPDestination

__all__ = ["TorchFSDPCheckpointIO"]


class TorchFSDPCheckpointIO(upstream.TorchFSDPCheckpointIO, GeneralCheckpointIO):
    """Checkpoint IO for TorchFSDPPlugin."""

    load_sharded_optimizer = GeneralCheckpointIO.load_sharded_optimizer
    load_unsharded_optimizer = GeneralCheckpointIO.load_unsharded_optimizer

    def optimizer_destination(self, optimizer: OptimizerWrapper) -> Destination:
        """Each rank holds slices of the same optimizer. See GeneralCheckpointIO."""
        require_boosted(optimizer, upstream.FSDPOptimizerWrapper)
        return FSDPDestination(optimizer.unwrap(), optimizer.unwrap_model().unwrap(), dist.group.WORLD)

    def optimizer_writers(self) -> Tuple[bool, Optional[ProcessGroup]]:
        """The master writes. See GeneralCheckpointIO."""
        return self.coordinator.is_master(), None
