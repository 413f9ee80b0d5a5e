"""Loading for torch's data parallelism: every rank holds the optimizer whole, and all must hold the same."""

from typing import Optional, Tuple

import colossalai.booster.plugin.torch_ddp_plugin as upstream
import torch.distributed as dist
from colossalai.interface import OptimizerWrapper
from torch.distributed import ProcessGroup

from .general_checkpoint_io import GeneralCheckpointIO
from .optimizer_restore.boosted import require_boosted
from .optimizer_restore.destination import Destination

__all__ = ["TorchDDPCheckpointIO"]


class TorchDDPCheckpointIO(upstream.TorchDDPCheckpointIO, GeneralCheckpointIO):
    """Checkpoint IO for TorchDDPPlugin."""

    load_sharded_optimizer = GeneralCheckpointIO.load_sharded_optimizer
    load_unsharded_optimizer = GeneralCheckpointIO.load_unsharded_optimizer

    def optimizer_destination(self, optimizer: OptimizerWrapper) -> Destination:
        """All ranks load together: parameters drift apart if one of them holds other state. See GeneralCheckpointIO."""
        require_boosted(optimizer)
        return Destination(optimizer.unwrap(), dist.group.WORLD)

    def optimizer_writers(self) -> Tuple[bool, Optional[ProcessGroup]]:
        """The master writes. See GeneralCheckpointIO."""
        return self.coordinator.is_master(), None
