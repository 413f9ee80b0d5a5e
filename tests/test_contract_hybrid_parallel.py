"""The gate's cases for this class, run as part of the project's own tests."""

from colossalai_fork.gate.test_hybrid_parallel import (
    TestDataParallel,
    TestMixedPrecision,
    TestMixedPrecisionScaled,
    TestPipeline,
    TestPipelineZero,
    TestTensorParallel,
    TestTensorParallelPipeline,
    TestTensorParallelZero,
    TestZero1On3,
    TestZero2,
    TestZero2Offload,
)

__all__ = [
    "TestDataParallel",
    "TestMixedPrecision",
    "TestMixedPrecisionScaled",
    "TestPipeline",
    "TestPipelineZero",
    "TestTensorParallel",
    "TestTensorParallelPipeline",
    "TestTensorParallelZero",
    "TestZero1On3",
    "TestZero2",
    "TestZero2Offload",
]
