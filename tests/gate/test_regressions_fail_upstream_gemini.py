"""The contract's regression tests fail on unmodified ColossalAI for Gemini and FSDP too; see the module without suffix."""

from unmodified import Unmodified, needs_unmodified_colossalai

from colossalai_fork.gate.configurations.gemini import GeminiContract
from colossalai_fork.gate.configurations.torch_fsdp import TorchFSDPContract

pytestmark = needs_unmodified_colossalai


class TestGemini(Unmodified, GeminiContract):
    """GeminiCheckpointIO, two processes."""

    world_size = 2


class TestTorchFSDP(Unmodified, TorchFSDPContract):
    """TorchFSDPCheckpointIO, two processes."""

    world_size = 2
