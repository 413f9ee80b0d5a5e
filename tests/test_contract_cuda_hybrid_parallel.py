"""The gate's cases for GPUs, run as part of the project's own tests."""

from colossalai_fork.gate.test_cuda_hybrid_parallel import (
    TestExpertParallelCuda,
    TestExpertsCudaAlone,
    TestHybridParallelZeroCudaAlone,
    TestPipelineZeroCuda,
    TestTensorParallelCuda,
)

__all__ = [
    "TestExpertParallelCuda",
    "TestExpertsCudaAlone",
    "TestHybridParallelZeroCudaAlone",
    "TestPipelineZeroCuda",
    "TestTensorParallelCuda",
]
