"""The contract's regression tests fail on unmodified ColossalAI, and what does not fail there says why.

These are the same cases as in colossalai_fork/gate/suite, run with the overlay off and judged the other way round. A regression
test that passes on unmodified ColossalAI would guard nothing; a case that is said to be a guard must hold there.
"""

from unmodified import needs_unmodified_colossalai

from colossalai_fork.gate.configurations import GeneralContract, LowLevelZeroContract, TorchDDPContract

pytestmark = needs_unmodified_colossalai


class TestGeneral(GeneralContract):
    """GeneralCheckpointIO, one process."""

    overlay, faults_expected = False, True


class TestTorchDDP(TorchDDPContract):
    """TorchDDPCheckpointIO, two processes."""

    overlay, faults_expected = False, True
    world_size = 2


class TestZero(LowLevelZeroContract):
    """LowLevelZeroCheckpointIO, two processes."""

    overlay, faults_expected = False, True
    world_size = 2
