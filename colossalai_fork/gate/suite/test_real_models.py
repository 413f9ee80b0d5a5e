"""The contract for HybridParallelCheckpointIO and MoECheckpointIO with a small Llama and a small Mixtral."""

from ..configurations.real_models import LlamaContract, MixtralContract, TiedMixtralContract


class TestLlamaZero(LlamaContract):
    """Two processes, ZeRO stage 2."""

    world_size = 2
    zero = 2
    precision = "bf16"


class TestLlamaTensorParallel(LlamaContract):
    """Two processes, layers cut in two, the vocabulary padded before."""

    world_size = 2
    tensor_parallel = 2
    vocabulary = 100


class TestLlamaTiedPipeline(LlamaContract):
    """Two stages that share the embedding."""

    world_size = 2
    stages = 2
    tied = True


class TestLlamaTensorParallelPipeline(LlamaContract):
    """Two by two processes."""

    world_size = 4
    tensor_parallel = 2
    stages = 2


class TestLlamaTensorParallelZero(LlamaContract):
    """Two by two processes."""

    world_size = 4
    tensor_parallel = 2
    zero = 1
    precision = "bf16"


class TestLlamaPipelineZero(LlamaContract):
    """Two by two processes."""

    world_size = 4
    stages = 2
    zero = 1
    precision = "fp16"


class TestMixtralAlone(MixtralContract):
    """One process."""


class TestMixtralExpertParallel(MixtralContract):
    """Two processes, half of the experts on each."""

    world_size = 2
    expert_parallel = 2


class TestMixtralTensorParallel(MixtralContract):
    """Two processes, layers and experts cut in two."""

    world_size = 2
    tensor_parallel = 2


class TestMixtralTied(TiedMixtralContract):
    """Two processes, half of the experts on each, a padded vocabulary."""

    world_size = 2
    expert_parallel = 2


class TestMixtralExpertParallelZero(MixtralContract):
    """Two by two processes."""

    world_size = 4
    expert_parallel = 2


class TestMixtralExpertParallelPipeline(MixtralContract):
    """Two by two processes."""

    world_size = 4
    expert_parallel = 2
    stages = 2
