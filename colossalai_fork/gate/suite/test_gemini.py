"""The contract for GeminiCheckpointIO."""

from ..configurations.gemini import GeminiContract
from ..configurations.gemini_tensor_parallel import TensorParallelGeminiCases


class TestGeminiAlone(GeminiContract):
    """One process."""

    layouts = ("torch-sharded", "safetensors-one-file")


class TestGemini(GeminiContract):
    """Two processes, chunks cut in two."""

    world_size = 2


class TestGeminiGathered(GeminiContract):
    """Two processes that keep whole chunks."""

    world_size = 2
    layouts = ("torch-sharded", "torch-one-file")
    cuts = False
    gathered = True


class TestGeminiOffload(GeminiContract):
    """Two processes, half of the parameters and all of the state in host memory, no float32 copies."""

    world_size = 2
    layouts = ("torch-sharded", "torch-one-file")
    master_weights = False
    options = {"offload_optim_frac": 1.0, "offload_param_frac": 0.5}


class TestGeminiOnFour(GeminiContract):
    """Four processes: most hold no element of most parameters."""

    world_size = 4
    layouts = ("torch-sharded",)


class TestGeminiExtraDataParallel(GeminiContract):
    """Two by two processes: an outer data-parallel group beside the inner one."""

    world_size = 4
    layouts = ("safetensors-sharded",)
    options = {"extra_dp_size": 2}


class TestGeminiTensorParallel(TensorParallelGeminiCases):
    """Two processes, each a half of a model."""


class TestGeminiTensorParallelOnFour(TensorParallelGeminiCases):
    """Two by two processes: halves of a model in chunks cut in two."""

    world_size = 4
