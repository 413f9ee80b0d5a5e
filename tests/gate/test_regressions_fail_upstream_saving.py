"""Unmodified ColossalAI leaves mixtures, or nothing that loads, where saving over a checkpoint is interrupted."""

from unmodified import needs_unmodified_colossalai

from colossalai_fork.gate.suite import test_saving

pytestmark = needs_unmodified_colossalai


class TestGeneral(test_saving.TestGeneral):
    """One process."""

    overlay, faults_expected = False, True


class TestZero(test_saving.TestZero):
    """Two processes."""

    overlay, faults_expected = False, True


class TestHybridPipeline(test_saving.TestHybridPipeline):
    """Two stages."""

    overlay, faults_expected = False, True


class TestExpertParallel(test_saving.TestExpertParallel):
    """Two expert ranks."""

    overlay, faults_expected = False, True


class TestGemini(test_saving.TestGemini):
    """Two processes."""

    overlay, faults_expected = False, True


class TestTorchFSDP(test_saving.TestTorchFSDP):
    """Two processes."""

    overlay, faults_expected = False, True
