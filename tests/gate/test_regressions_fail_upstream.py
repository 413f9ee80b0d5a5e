"""The contract's regression tests fail on unmodified ColossalAI; unmodified.json lists the cases that hold there.

These are the same cases as in colossalai_fork/gate/suite, run with the overlay off and judged the other way round. A regression
test that passes on unmodified ColossalAI would guard nothing.
"""

from unmodified import Unmodified, needs_unmodified_colossalai

from colossalai_fork.gate.configurations import GeneralContract, LowLevelZeroContract, TorchDDPContract

pytestmark = needs_unmodified_colossalai


class TestGeneral(Unmodified, GeneralContract):
    """GeneralCheckpointIO, one process."""


class TestTorchDDP(Unmodified, TorchDDPContract):
    """TorchDDPCheckpointIO, two processes."""

    world_size = 2


class TestZero(Unmodified, LowLevelZeroContract):
    """LowLevelZeroCheckpointIO, two processes."""

    world_size = 2
