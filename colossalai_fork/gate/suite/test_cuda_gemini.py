"""The contract on GPUs for GeminiCheckpointIO and TorchFSDPCheckpointIO.

Gemini's Adam compiles its kernels, so its configurations ask for a CUDA toolkit too.
"""

from ..configurations.gemini import GeminiContract
from ..configurations.torch_fsdp import TorchFSDPContract
from ..contract.cases.optimizers import only_cases_of
from ..contract.cases.own_files import OwnFilesCases
from ..contract.cases.replacing import ReplacingCases
from .test_cuda import CudaCases, on_gpus


@on_gpus(1)
@only_cases_of(ReplacingCases, OwnFilesCases)
class TestGeminiCudaAlone(GeminiContract):
    """One GPU."""

    device = "cuda"
    layouts = ("torch-sharded", "torch-one-file")


@on_gpus(2)
@only_cases_of(ReplacingCases, OwnFilesCases)
class TestGeminiCuda(GeminiContract):
    """Two GPUs, chunks cut in two."""

    device = "cuda"
    world_size = 2
    layouts = ("torch-sharded", "torch-one-file")


@on_gpus(1)
@only_cases_of(ReplacingCases, OwnFilesCases, CudaCases)
class TestTorchFSDPCudaAlone(CudaCases, TorchFSDPContract):
    """One GPU."""

    device = "cuda"
    layouts = ("torch-sharded", "torch-one-file")


@on_gpus(2)
@only_cases_of(ReplacingCases, OwnFilesCases, CudaCases)
class TestTorchFSDPCuda(CudaCases, TorchFSDPContract):
    """Two GPUs."""

    device = "cuda"
    world_size = 2
    layouts = ("torch-sharded", "torch-one-file")
