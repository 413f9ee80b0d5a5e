"""The gate's cases for this class, run as part of the project's own tests."""

from colossalai_fork.gate.test_gemini import (
    TestGemini,
    TestGeminiAlone,
    TestGeminiExtraDataParallel,
    TestGeminiGathered,
    TestGeminiOffload,
    TestGeminiOnFour,
    TestGeminiTensorParallel,
    TestGeminiTensorParallelOnFour,
)

__all__ = [
    "TestGemini",
    "TestGeminiAlone",
    "TestGeminiExtraDataParallel",
    "TestGeminiGathered",
    "TestGeminiOffload",
    "TestGeminiOnFour",
    "TestGeminiTensorParallel",
    "TestGeminiTensorParallelOnFour",
]
