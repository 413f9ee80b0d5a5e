"""The contract for HybridParallelCheckpointIO."""

from .hybrid_parallel import HybridParallelContract


class TestZero2(HybridParallelContract):
    """Two processes, ZeRO stage 2, bfloat16."""

    world_size = 2
    zero = 2
    precision = "bf16"


class TestTensorParallel(HybridParallelContract):
    """Two processes, every weight cut in two."""

    world_size = 2
    tensor_parallel = 2
