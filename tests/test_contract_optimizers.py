"""The gate's cases for ColossalAI's own optimizers, run as part of the project's own tests."""

from colossalai_fork.gate.test_optimizers import (
    TestGeminiAfterTorchsAdam,
    TestOptimizersLowLevelZero,
    TestOptimizersMixedPrecision,
    TestOptimizersOfExperts,
    TestOptimizersTensorParallel,
    TestOptimizersTensorParallelZero,
    TestOptimizersZero,
)

__all__ = [
    "TestGeminiAfterTorchsAdam",
    "TestOptimizersLowLevelZero",
    "TestOptimizersMixedPrecision",
    "TestOptimizersOfExperts",
    "TestOptimizersTensorParallel",
    "TestOptimizersTensorParallelZero",
    "TestOptimizersZero",
]
