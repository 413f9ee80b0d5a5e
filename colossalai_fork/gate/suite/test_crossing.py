"""Checkpoints that one configuration saves and another loads: other numbers of ranks, other classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..contract.base import ContractBase
from ..contract.cases.crossing import cross
from .test_general import TestGeneral as General
from .test_low_level_zero import TestZeroExtraDataParallel as ZeroOnFour
from .test_low_level_zero import TestZeroStage1 as ZeroOnTwo
from .test_low_level_zero import TestZeroStage1Alone as ZeroAlone
from .test_low_level_zero import TestZeroStage1On3 as ZeroOnThree
from .test_low_level_zero import TestZeroStage2 as ZeroStageTwo
from .test_torch_ddp import TestTorchDDP as DDP

if TYPE_CHECKING:
    from ..plugin import Gate

PAIRS = [
    (ZeroOnTwo, ZeroAlone),
    (ZeroOnTwo, ZeroOnThree),
    (ZeroOnTwo, ZeroOnFour),
    (ZeroAlone, ZeroOnTwo),
    (ZeroOnThree, ZeroOnTwo),
    (ZeroOnTwo, ZeroStageTwo),
    (ZeroOnTwo, General),
    (General, ZeroOnTwo),
    (General, DDP),
    (DDP, General),
]


@pytest.mark.parametrize("saver, loader", PAIRS, ids=lambda configuration: configuration.__name__)
def test_loads_what_another_configuration_saved(
    saver: type[ContractBase], loader: type[ContractBase], colossalai_fork_gate: Gate, tmp_path: Path
) -> None:
    """The loader holds its part of what the saver held, bit for bit."""
    cross(colossalai_fork_gate, saver, loader, tmp_path)
