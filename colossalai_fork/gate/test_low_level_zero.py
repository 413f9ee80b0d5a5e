"""The contract for LowLevelZeroCheckpointIO."""

from .configurations import LowLevelZeroContract


class TestZeroStage1Alone(LowLevelZeroContract):
    """One process."""

    world_size = 1
    precision = "fp16"


class TestZeroStage1(LowLevelZeroContract):
    """Two processes, bfloat16."""

    world_size = 2


class TestZeroStage2(LowLevelZeroContract):
    """Two processes, float16."""

    world_size = 2
    stage = 2
    precision = "fp16"


class TestZeroStage1On3(LowLevelZeroContract):
    """Three processes, float32: slices are padded."""

    world_size = 3
    precision = "fp32"


class TestZeroStage2Offload(LowLevelZeroContract):
    """Three processes, state in host memory."""

    world_size = 3
    stage = 2
    offload = True


class TestZeroExtraDataParallel(LowLevelZeroContract):
    """Two by two processes: an outer data-parallel group beside the inner one."""

    world_size = 4
    extra_data_parallel = 2
