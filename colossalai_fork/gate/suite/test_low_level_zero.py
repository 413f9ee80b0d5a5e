"""The contract for LowLevelZeroCheckpointIO.

One configuration loads every layout. The others, which differ in how state is cut and not in how files are read, load two.
"""

from ..configurations import LowLevelZeroContract

TORCH_LAYOUTS = ("torch-sharded", "torch-one-file")


class TestZeroStage1Alone(LowLevelZeroContract):
    """One process."""

    world_size = 1
    layouts = TORCH_LAYOUTS
    precision = "fp16"


class TestZeroStage1(LowLevelZeroContract):
    """Two processes, bfloat16."""

    thorough = True
    world_size = 2


class TestZeroStage2(LowLevelZeroContract):
    """Two processes, float16."""

    world_size = 2
    layouts = ("torch-sharded", "safetensors-one-file")
    stage = 2
    precision = "fp16"


class TestZeroStage1On3(LowLevelZeroContract):
    """Three processes, float32: slices are padded."""

    world_size = 3
    layouts = ("torch-sharded", "safetensors-sharded")
    precision = "fp32"


class TestZeroStage2Offload(LowLevelZeroContract):
    """Three processes, state in host memory."""

    world_size = 3
    layouts = TORCH_LAYOUTS
    stage = 2
    offload = True


class TestZeroExtraDataParallel(LowLevelZeroContract):
    """Two by two processes: an outer data-parallel group beside the inner one."""

    world_size = 4
    layouts = TORCH_LAYOUTS
    extra_data_parallel = 2
