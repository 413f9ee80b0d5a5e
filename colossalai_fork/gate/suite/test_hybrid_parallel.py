"""The contract for HybridParallelCheckpointIO.

One configuration loads every layout and all kinds of damaged files. The others, which differ in how state is cut and not in
how files are read, load one or two layouts.
"""

from ..configurations.hybrid_parallel import HybridParallelContract, without
from ..contract.cases.damage import DamageCases
from ..contract.cases.native import NativeCases
from ..contract.cases.ranks import RankCases
from ..contract.cases.refusing import RefusingCases
from ..contract.cases.resources import ResourceCases
from ..contract.cases.unmodified_files import UnmodifiedFilesCases


class TestZero2(HybridParallelContract):
    """Two processes, ZeRO stage 2, bfloat16."""

    world_size = 2
    zero = 2
    precision = "bf16"


@without(DamageCases, ResourceCases)
class TestDataParallel(HybridParallelContract):
    """Two processes, float32, whole optimizers."""

    world_size = 2
    layouts = ("torch-sharded", "torch-one-file")


@without(DamageCases, ResourceCases)
class TestMixedPrecision(HybridParallelContract):
    """Two processes, bfloat16 beside float32 copies, no ZeRO."""

    world_size = 2
    layouts = ("safetensors-sharded",)
    precision = "bf16"


@without(DamageCases, NativeCases, RankCases, RefusingCases, UnmodifiedFilesCases)
class TestMixedPrecisionScaled(HybridParallelContract):
    """The same in float16, whose gradients are scaled."""

    world_size = 2
    layouts = ("torch-one-file",)
    precision = "fp16"


@without(DamageCases, ResourceCases)
class TestZero1On3(HybridParallelContract):
    """Three processes, ZeRO stage 1: slices are padded."""

    world_size = 3
    layouts = ("torch-sharded",)
    zero = 1
    precision = "bf16"


@without(DamageCases, ResourceCases)
class TestZero2Offload(HybridParallelContract):
    """Two processes, ZeRO stage 2, float16, state in host memory."""

    world_size = 2
    layouts = ("torch-one-file",)
    zero = 2
    precision = "fp16"
    options = {"cpu_offload": True}


@without(DamageCases)
class TestTensorParallel(HybridParallelContract):
    """Two processes, weights cut in two, some of them padded."""

    world_size = 2
    layouts = ("torch-sharded", "torch-one-file")
    tensor_parallel = 2


@without(DamageCases)
class TestPipeline(HybridParallelContract):
    """Two processes, a pipeline stage on each."""

    world_size = 2
    layouts = ("torch-sharded", "safetensors-one-file")
    stages = 2


@without(DamageCases)
class TestTensorParallelZero(HybridParallelContract):
    """Two by two processes: slices of parts."""

    world_size = 4
    layouts = ("torch-sharded",)
    tensor_parallel = 2
    zero = 1
    precision = "bf16"


@without(DamageCases, ResourceCases)
class TestPipelineZero(HybridParallelContract):
    """Two by two processes: slices on each of two stages."""

    world_size = 4
    layouts = ("torch-sharded",)
    stages = 2
    zero = 1
    precision = "bf16"


@without(DamageCases, ResourceCases)
class TestTensorParallelPipeline(HybridParallelContract):
    """Two by two processes: parts on each of two stages."""

    world_size = 4
    layouts = ("torch-one-file",)
    tensor_parallel = 2
    stages = 2
