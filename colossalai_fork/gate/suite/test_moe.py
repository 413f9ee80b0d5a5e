"""The contract for MoECheckpointIO. Damaged files and resources are the same as under hybrid parallelism, but for one."""

from ..configurations.hybrid_parallel import without
from ..configurations.moe import MoEContract
from ..contract.cases.damage import DamageCases
from ..contract.cases.resources import ResourceCases


class TestExpertParallel(MoEContract):
    """Two processes, half of the experts on each."""

    world_size = 2
    layouts = ("torch-sharded", "torch-one-file")
    expert_parallel = 2


@without(DamageCases, ResourceCases)
class TestExpertsAlone(MoEContract):
    """One process: ZeRO has nothing to divide."""

    layouts = ("torch-sharded",)


@without(DamageCases, ResourceCases)
class TestExpertsDataParallel(MoEContract):
    """Two processes, all experts on both."""

    world_size = 2
    layouts = ("safetensors-sharded",)


@without(DamageCases, ResourceCases)
class TestExpertsTensorParallel(MoEContract):
    """Two processes, all weights cut in two."""

    world_size = 2
    layouts = ("torch-one-file",)
    tensor_parallel = 2


@without(DamageCases, ResourceCases)
class TestExpertsWithoutZero(MoEContract):
    """Two processes, all experts on both, float32."""

    world_size = 2
    layouts = ("torch-one-file",)
    zero = 0
    precision = "fp32"


@without(DamageCases, ResourceCases)
class TestExpertParallelZero(MoEContract):
    """Two by two processes: half of the experts on each pair, sliced."""

    world_size = 4
    layouts = ("torch-sharded",)
    expert_parallel = 2


@without(DamageCases, ResourceCases)
class TestExpertParallelPipeline(MoEContract):
    """Two by two processes: half of the experts of a stage on each."""

    world_size = 4
    layouts = ("torch-sharded",)
    expert_parallel = 2
    stages = 2


@without(DamageCases, ResourceCases)
class TestExpertParallelTensorParallel(MoEContract):
    """Two by two processes: half of the experts on each pair, cut in two."""

    world_size = 4
    layouts = ("torch-one-file",)
    expert_parallel = 2
    tensor_parallel = 2
