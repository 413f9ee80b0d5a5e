"""The gate's cases for these models, run as part of the project's own tests."""

from colossalai_fork.gate.test_real_models import (
    TestLlamaPipelineZero,
    TestLlamaTensorParallel,
    TestLlamaTensorParallelPipeline,
    TestLlamaTensorParallelZero,
    TestLlamaTiedPipeline,
    TestLlamaZero,
    TestMixtralAlone,
    TestMixtralExpertParallel,
    TestMixtralExpertParallelPipeline,
    TestMixtralExpertParallelZero,
    TestMixtralTensorParallel,
    TestMixtralTied,
)

__all__ = [
    "TestLlamaPipelineZero",
    "TestLlamaTensorParallel",
    "TestLlamaTensorParallelPipeline",
    "TestLlamaTensorParallelZero",
    "TestLlamaTiedPipeline",
    "TestLlamaZero",
    "TestMixtralAlone",
    "TestMixtralExpertParallel",
    "TestMixtralExpertParallelPipeline",
    "TestMixtralExpertParallelZero",
    "TestMixtralTensorParallel",
    "TestMixtralTied",
]
