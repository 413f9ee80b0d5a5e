"""Saving in a single step: ended anywhere, each class leaves the old checkpoint or the new one."""

from ..contract.cases.interrupted_saving import InterruptedSavingCases
from . import (
    test_gemini,
    test_general,
    test_hybrid_parallel,
    test_low_level_zero,
    test_moe,
    test_torch_ddp,
    test_torch_fsdp,
)


def only_saving(configuration: type) -> type:
    """Leave out the cases that the configuration runs in its own module.

    Args:
        configuration (type): a contract with :class:`InterruptedSavingCases`.

    Returns:
        type: the same.
    """
    for name in dir(configuration):
        if name.startswith("test") and name not in vars(InterruptedSavingCases):
            setattr(configuration, name, None)
    return configuration


@only_saving
class TestGeneral(InterruptedSavingCases, test_general.TestGeneral):
    """One process."""


@only_saving
class TestTorchDDP(InterruptedSavingCases, test_torch_ddp.TestTorchDDP):
    """Two processes, of which one writes."""


@only_saving
class TestZero(InterruptedSavingCases, test_low_level_zero.TestZeroStage1):
    """Two processes, of which one writes."""


@only_saving
class TestHybridZero(InterruptedSavingCases, test_hybrid_parallel.TestZero2):
    """Two processes, of which one writes."""


@only_saving
class TestHybridDataParallel(InterruptedSavingCases, test_hybrid_parallel.TestDataParallel):
    """Two processes, of which one takes part."""


@only_saving
class TestHybridPipeline(InterruptedSavingCases, test_hybrid_parallel.TestPipeline):
    """A process for each of two stages: both write."""


@only_saving
class TestHybridTensorParallelPipeline(InterruptedSavingCases, test_hybrid_parallel.TestTensorParallelPipeline):
    """Two processes for each of two stages, of which one writes."""


@only_saving
class TestExpertParallel(InterruptedSavingCases, test_moe.TestExpertParallel):
    """Two processes with half of the experts each: both write."""


@only_saving
class TestExpertsDataParallel(InterruptedSavingCases, test_moe.TestExpertsDataParallel):
    """Two processes, of which one writes."""


@only_saving
class TestExpertParallelPipeline(InterruptedSavingCases, test_moe.TestExpertParallelPipeline):
    """Two by two processes: all write."""


@only_saving
class TestGemini(InterruptedSavingCases, test_gemini.TestGemini):
    """Two processes, of which one writes."""


@only_saving
class TestTorchFSDP(InterruptedSavingCases, test_torch_fsdp.TestTorchFSDP):
    """Two processes, of which one writes."""
