"""Checkpoints that one configuration saves and another loads: hybrid parallelism and experts, and what comes from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..configurations import HybridParallelContract
from ..contract.base import ContractBase
from ..contract.cases.crossing import cross
from . import test_general, test_hybrid_parallel, test_low_level_zero, test_moe

if TYPE_CHECKING:
    from ..plugin import Gate


class ZeroAlone(HybridParallelContract):
    """One process."""

    __test__ = False
    zero = 1
    precision = "bf16"


class ZeroOnFour(HybridParallelContract):
    """Four processes."""

    __test__ = False
    world_size = 4
    zero = 1
    precision = "bf16"


PAIRS = [
    (test_hybrid_parallel.TestZero2, ZeroAlone),
    (ZeroAlone, test_hybrid_parallel.TestZero2),
    (test_hybrid_parallel.TestZero2, test_hybrid_parallel.TestZero1On3),
    (test_hybrid_parallel.TestZero1On3, test_hybrid_parallel.TestZero2),
    (test_hybrid_parallel.TestZero2, ZeroOnFour),
    (ZeroOnFour, test_hybrid_parallel.TestZero2),
    (test_hybrid_parallel.TestZero1On3, test_hybrid_parallel.TestTensorParallelZero),
    (test_hybrid_parallel.TestDataParallel, test_hybrid_parallel.TestTensorParallel),
    (test_hybrid_parallel.TestTensorParallel, test_hybrid_parallel.TestDataParallel),
    (test_hybrid_parallel.TestTensorParallelZero, test_hybrid_parallel.TestPipeline),
    (test_hybrid_parallel.TestPipeline, test_hybrid_parallel.TestDataParallel),
    (test_hybrid_parallel.TestDataParallel, test_hybrid_parallel.TestPipeline),
    (test_hybrid_parallel.TestPipeline, test_hybrid_parallel.TestTensorParallelPipeline),
    (test_hybrid_parallel.TestPipeline, test_hybrid_parallel.TestPipelineZero),
    (test_hybrid_parallel.TestTensorParallelPipeline, test_hybrid_parallel.TestZero2),
    (test_hybrid_parallel.TestZero2Offload, test_hybrid_parallel.TestMixedPrecision),
    (test_hybrid_parallel.TestPipeline, test_general.TestGeneral),
    (test_general.TestGeneral, test_hybrid_parallel.TestTensorParallelPipeline),
    (test_hybrid_parallel.TestTensorParallel, test_low_level_zero.TestZeroStage1),
    (test_moe.TestExpertParallel, test_moe.TestExpertsAlone),
    (test_moe.TestExpertsAlone, test_moe.TestExpertParallel),
    (test_moe.TestExpertsAlone, test_moe.TestExpertsDataParallel),
    (test_moe.TestExpertsDataParallel, test_moe.TestExpertsAlone),
    (test_moe.TestExpertParallel, test_moe.TestExpertParallelZero),
    (test_moe.TestExpertParallelZero, test_moe.TestExpertsDataParallel),
    (test_moe.TestExpertsDataParallel, test_moe.TestExpertsTensorParallel),
    (test_moe.TestExpertsTensorParallel, test_moe.TestExpertParallelTensorParallel),
    (test_moe.TestExpertsWithoutZero, test_moe.TestExpertParallel),
    (test_moe.TestExpertParallel, test_general.TestGeneral),
    (test_general.TestGeneral, test_moe.TestExpertParallel),
]


@pytest.mark.parametrize("saver, loader", PAIRS, ids=lambda configuration: configuration.__name__)
def test_loads_what_another_configuration_saved(
    saver: type[ContractBase], loader: type[ContractBase], colossalai_fork_gate: Gate, tmp_path: Path
) -> None:
    """The loader holds its part of what the saver held, bit for bit."""
    cross(colossalai_fork_gate, saver, loader, tmp_path)


@pytest.mark.parametrize(
    "saver",
    [test_moe.TestExpertParallel, test_moe.TestExpertsWithoutZero],
    ids=lambda configuration: configuration.__name__,
)
def test_loads_what_another_configuration_saved_in_one_file(
    saver: type[ContractBase], colossalai_fork_gate: Gate, tmp_path: Path
) -> None:
    """One rank has written whole tensors by their global ids, which one process loads."""
    cross(colossalai_fork_gate, saver, test_general.TestGeneral, tmp_path, one_file=True)
