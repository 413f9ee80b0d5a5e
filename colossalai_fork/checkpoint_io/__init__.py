"""ColossalAI's checkpoint IO classes with a loader that replaces the optimizer's state.

The names are upstream's, so ``from colossalai_fork.checkpoint_io import GeneralCheckpointIO`` is all that code needs which
makes its own checkpoint IO. :func:`colossalai_fork.apply` puts the same methods into upstream's classes.
"""

from .gemini import GeminiCheckpointIO
from .general_checkpoint_io import GeneralCheckpointIO
from .hybrid_parallel import HybridParallelCheckpointIO
from .low_level_zero import LowLevelZeroCheckpointIO
from .moe import MoECheckpointIO
from .optimizer_restore.errors import CheckpointDamagedError, CheckpointLoadError, CheckpointMismatchError
from .torch_ddp import TorchDDPCheckpointIO
from .torch_fsdp import TorchFSDPCheckpointIO
from .utils import load_param_groups_into_optimizer, load_states_into_optimizer

__all__ = [
    "CheckpointDamagedError",
    "CheckpointLoadError",
    "CheckpointMismatchError",
    "GeminiCheckpointIO",
    "GeneralCheckpointIO",
    "HybridParallelCheckpointIO",
    "LowLevelZeroCheckpointIO",
    "MoECheckpointIO",
    "TorchDDPCheckpointIO",
    "TorchFSDPCheckpointIO",
    "load_param_groups_into_optimizer",
    "load_states_into_optimizer",
]
