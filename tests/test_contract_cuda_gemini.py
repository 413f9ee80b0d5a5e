"""The gate's cases for Gemini and FSDP on GPUs, run as part of the project's own tests."""

from colossalai_fork.gate.test_cuda_gemini import (
    TestGeminiCuda,
    TestGeminiCudaAlone,
    TestTorchFSDPCuda,
    TestTorchFSDPCudaAlone,
)

__all__ = ["TestGeminiCuda", "TestGeminiCudaAlone", "TestTorchFSDPCuda", "TestTorchFSDPCudaAlone"]
