"""Unmodified ColossalAI leaves mixtures, or nothing that loads, where saving over a checkpoint is interrupted."""

from unmodified import Unmodified, needs_unmodified_colossalai

from colossalai_fork.gate.suite import test_saving

pytestmark = needs_unmodified_colossalai


class TestGeneral(Unmodified, test_saving.TestGeneral):
    """One process."""


class TestZero(Unmodified, test_saving.TestZero):
    """Two processes."""


class TestHybridPipeline(Unmodified, test_saving.TestHybridPipeline):
    """Two stages."""


class TestExpertParallel(Unmodified, test_saving.TestExpertParallel):
    """Two expert ranks."""


class TestGemini(Unmodified, test_saving.TestGemini):
    """Two processes."""


class TestTorchFSDP(Unmodified, test_saving.TestTorchFSDP):
    """Two processes."""
