"""ColossalAI's checkpoint IO classes with a loader that replaces the optimizer's state.

The names are upstream's, so ``from colossalai_fork.checkpoint_io import GeneralCheckpointIO`` is all that code needs which
makes its own checkpoint IO. :func:`colossalai_fork.apply` puts the same methods into upstream's classes.
"""

import importlib
from typing import Any, List

_MODULES = {
    "CheckpointDamagedError": "optimizer_restore.errors",
    "CheckpointLoadError": "optimizer_restore.errors",
    "CheckpointMismatchError": "optimizer_restore.errors",
    "GeminiCheckpointIO": "gemini",
    "GeneralCheckpointIO": "general_checkpoint_io",
    "HybridParallelCheckpointIO": "hybrid_parallel",
    "LowLevelZeroCheckpointIO": "low_level_zero",
    "MoECheckpointIO": "moe",
    "TorchDDPCheckpointIO": "torch_ddp",
    "TorchFSDPCheckpointIO": "torch_fsdp",
    "load_param_groups_into_optimizer": "utils",
    "load_states_into_optimizer": "utils",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    # The classes take seconds to import, as all of colossalai does; looking at a checkpoint needs none of it.
    if name in _MODULES:
        return getattr(importlib.import_module("{}.{}".format(__name__, _MODULES[name])), name)
    raise AttributeError("module {!r} has no attribute {!r}".format(__name__, name))


def __dir__() -> List[str]:
    return sorted([*globals(), *__all__])
