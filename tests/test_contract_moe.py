"""The gate's cases for this class, run as part of the project's own tests."""

from colossalai_fork.gate.test_moe import (
    TestExpertParallel,
    TestExpertParallelPipeline,
    TestExpertParallelTensorParallel,
    TestExpertParallelZero,
    TestExpertsAlone,
    TestExpertsDataParallel,
    TestExpertsTensorParallel,
    TestExpertsWithoutZero,
)

__all__ = [
    "TestExpertParallel",
    "TestExpertParallelPipeline",
    "TestExpertParallelTensorParallel",
    "TestExpertParallelZero",
    "TestExpertsAlone",
    "TestExpertsDataParallel",
    "TestExpertsTensorParallel",
    "TestExpertsWithoutZero",
]
