"""Checkpoints that one configuration saves and another loads: other numbers of ranks, other classes."""

import pytest

from ..contract.cases.crossing import cross
from .test_general import TestGeneral as General
from .test_low_level_zero import TestZeroExtraDataParallel as ZeroOnFour
from .test_low_level_zero import TestZeroStage1 as ZeroOnTwo
from .test_low_level_zero import TestZeroStage1Alone as ZeroAlone
from .test_low_level_zero import TestZeroStage1On3 as ZeroOnThree
from .test_low_level_zero import TestZeroStage2 as ZeroStageTwo
from .test_torch_ddp import TestTorchDDP as DDP

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
def test_loads_what_another_configuration_saved(saver, loader, colossalai_fork_gate, tmp_path):
    """The loader holds its part of what the saver held, bit for bit."""
    cross(colossalai_fork_gate, saver, loader, tmp_path)
