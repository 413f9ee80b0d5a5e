"""The contract on GPUs for HybridParallelCheckpointIO and MoECheckpointIO."""

from ..configurations.hybrid_parallel import HybridParallelContract
from ..configurations.moe import MoEContract
from .test_cuda import CudaCases, on_gpus


@on_gpus(1)
class TestHybridParallelZeroCudaAlone(CudaCases, HybridParallelContract):
    """One GPU, ZeRO stage 2."""

    device = "cuda"
    zero = 2
    precision = "bf16"


@on_gpus(2)
class TestTensorParallelCuda(CudaCases, HybridParallelContract):
    """Two GPUs, weights cut in two."""

    device = "cuda"
    world_size = 2
    tensor_parallel = 2


@on_gpus(4)
class TestPipelineZeroCuda(CudaCases, HybridParallelContract):
    """Two by two GPUs."""

    device = "cuda"
    world_size = 4
    stages = 2
    zero = 1
    precision = "fp16"


@on_gpus(1)
class TestExpertsCudaAlone(CudaCases, MoEContract):
    """One GPU: ZeRO has nothing to divide."""

    device = "cuda"


@on_gpus(2)
class TestExpertParallelCuda(CudaCases, MoEContract):
    """Two GPUs, half of the experts on each."""

    device = "cuda"
    world_size = 2
    expert_parallel = 2
