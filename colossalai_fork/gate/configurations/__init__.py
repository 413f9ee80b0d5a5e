"""What each checkpoint IO class of ColossalAI is under the contract; a class of one's own derives from the closest."""

from .boosted import BoosterContract
from .gemini import GeminiContract
from .general import GeneralContract
from .hybrid_parallel import HybridParallelContract
from .low_level_zero import LowLevelZeroContract
from .moe import MoEContract
from .torch_ddp import TorchDDPContract
from .torch_fsdp import TorchFSDPContract

__all__ = [
    "BoosterContract",
    "GeminiContract",
    "GeneralContract",
    "HybridParallelContract",
    "LowLevelZeroContract",
    "MoEContract",
    "TorchDDPContract",
    "TorchFSDPContract",
]
