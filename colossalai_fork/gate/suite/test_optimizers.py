"""The contract with ColossalAI's own optimizers, for the classes that divide their state.

DistGaloreAwamW is not among them: it does not go with the version of bitsandbytes that installs today, and never without CUDA.
"""

from ..configurations import LowLevelZeroContract
from ..configurations.gemini import GeminiContract
from ..configurations.hybrid_parallel import HybridParallelContract
from ..configurations.moe import MoEContract
from ..contract.cases.optimizers import OptimizerCases, TorchsAdamCases, only_cases_of

TORCH_LAYOUTS = ("torch-sharded", "torch-one-file")


@only_cases_of(OptimizerCases)
class TestOptimizersTensorParallel(OptimizerCases, HybridParallelContract):
    """Two processes, weights cut in two: the ranks average together."""

    world_size = 2
    layouts = TORCH_LAYOUTS
    tensor_parallel = 2


@only_cases_of(OptimizerCases)
class TestOptimizersMixedPrecision(OptimizerCases, HybridParallelContract):
    """The same, in bfloat16: copies in float32 know nothing of the cut."""

    world_size = 2
    layouts = TORCH_LAYOUTS
    tensor_parallel = 2
    precision = "bf16"
    averages_apart = True


@only_cases_of(OptimizerCases)
class TestOptimizersZero(OptimizerCases, HybridParallelContract):
    """Two processes, slices."""

    world_size = 2
    layouts = TORCH_LAYOUTS
    zero = 2
    precision = "bf16"
    averages_apart = True


@only_cases_of(OptimizerCases)
class TestOptimizersTensorParallelZero(OptimizerCases, HybridParallelContract):
    """Two by two processes: slices of parts."""

    world_size = 4
    layouts = ("torch-sharded",)
    tensor_parallel = 2
    zero = 1
    precision = "bf16"
    averages_apart = True
    # CAME and Adafactor cannot take a step where columns are cut and rows do not divide evenly.
    shapes = ((4, 3), (6,), (8, 3), (8,))


@only_cases_of(OptimizerCases)
class TestOptimizersOfExperts(OptimizerCases, MoEContract):
    """Two processes, half of the experts on each."""

    world_size = 2
    layouts = ("torch-sharded",)
    expert_parallel = 2
    # CAME and Adafactor divide experts that no other rank has.
    optimizers = ("HybridAdam", "CPUAdam", "Lamb")


@only_cases_of(OptimizerCases)
class TestOptimizersLowLevelZero(OptimizerCases, LowLevelZeroContract):
    """Two processes, slices, without hybrid parallelism."""

    world_size = 2
    layouts = TORCH_LAYOUTS
    zero = 1
    averages_apart = True


@only_cases_of(TorchsAdamCases)
class TestGeminiAfterTorchsAdam(TorchsAdamCases, GeminiContract):
    """Two processes, chunks cut in two."""

    world_size = 2
