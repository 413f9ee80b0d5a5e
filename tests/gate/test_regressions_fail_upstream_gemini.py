"""The contract's regression tests fail on unmodified ColossalAI for Gemini and FSDP too; see the module without suffix."""

from unmodified import needs_unmodified_colossalai

from colossalai_fork.gate.configurations.gemini import GeminiContract
from colossalai_fork.gate.configurations.torch_fsdp import TorchFSDPContract

pytestmark = needs_unmodified_colossalai


class TestGemini(GeminiContract):
    """GeminiCheckpointIO, two processes."""

    overlay, faults_expected = False, True
    world_size = 2


class TestTorchFSDP(TorchFSDPContract):
    """TorchFSDPCheckpointIO, two processes."""

    overlay, faults_expected = False, True
    world_size = 2
