"""The contract for GeminiCheckpointIO."""

from .gemini import GeminiContract


class TestGeminiAlone(GeminiContract):
    """One process."""


class TestGemini(GeminiContract):
    """Two processes, chunks cut in two."""

    world_size = 2


class TestGeminiGathered(GeminiContract):
    """Two processes that keep whole chunks."""

    world_size = 2
    gathered = True


class TestGeminiOffload(GeminiContract):
    """Two processes, state and parameters in host memory."""

    world_size = 2
    options = {"offload_optim_frac": 1.0, "offload_param_frac": 1.0}


class TestGeminiOnFour(GeminiContract):
    """Four processes: most hold no element of most parameters."""

    world_size = 4


class TestGeminiExtraDataParallel(GeminiContract):
    """Two by two processes: an outer data-parallel group beside the inner one."""

    world_size = 4
    options = {"extra_dp_size": 2}
