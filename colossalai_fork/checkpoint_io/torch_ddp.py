"""Loading for torch's data parallelism: every rank holds the optimizer whole, and all must hold the same."""

import colossalai.booster.plugin.torch_ddp_plugin as upstream
import torch.distributed as dist
from torch.distributed import ProcessGroup

from .general_checkpoint_io import GeneralCheckpointIO

__all__ = ["TorchDDPCheckpointIO"]


class TorchDDPCheckpointIO(upstream.TorchDDPCheckpointIO, GeneralCheckpointIO):
    """Checkpoint IO for TorchDDPPlugin. Upstream's loaders call those of the general class."""

    def loading_group(self) -> ProcessGroup:
        """
        Returns:
            ProcessGroup: All ranks: parameters drift apart if one of them holds other state.
        """
        return dist.group.WORLD
