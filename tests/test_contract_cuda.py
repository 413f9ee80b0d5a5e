"""The gate's cases for GPUs, run as part of the project's own tests."""

from colossalai_fork.gate.test_cuda import (
    TestGeneralCuda,
    TestTorchDDPCuda,
    TestZeroCuda,
    TestZeroCudaAlone,
    TestZeroOffloadCuda,
)

__all__ = ["TestGeneralCuda", "TestTorchDDPCuda", "TestZeroCudaAlone", "TestZeroCuda", "TestZeroOffloadCuda"]
