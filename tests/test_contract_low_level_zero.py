"""The gate's cases for this class, run as part of the project's own tests."""

from colossalai_fork.gate.test_low_level_zero import (
    TestZeroExtraDataParallel,
    TestZeroStage1,
    TestZeroStage1Alone,
    TestZeroStage1On3,
    TestZeroStage2,
    TestZeroStage2Offload,
)

__all__ = [
    "TestZeroStage1Alone",
    "TestZeroStage1",
    "TestZeroStage2",
    "TestZeroStage1On3",
    "TestZeroStage2Offload",
    "TestZeroExtraDataParallel",
]
