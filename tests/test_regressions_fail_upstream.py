"""The contract's regression tests fail on unmodified ColossalAI, and what does not fail there says why.

These are the same cases as in test_contract_*.py, run with the overlay off and judged the other way round. A regression
test that passes on unmodified ColossalAI would guard nothing; a case that is said to be a guard must hold there.
"""

import importlib.util
import os

import pytest

from colossalai_fork.gate.configurations import GeneralContract, LowLevelZeroContract, TorchDDPContract

_colossalai = importlib.util.find_spec("colossalai")
_fixed = _colossalai and os.path.exists(
    os.path.join(_colossalai.submodule_search_locations[0], "checkpoint_io", "restore.py")
)
pytestmark = pytest.mark.skipif(_fixed, reason="the installed ColossalAI has the fix")


class TestGeneral(GeneralContract):
    """GeneralCheckpointIO, one process."""

    overlay, faults_expected = False, True


class TestTorchDDP(TorchDDPContract):
    """TorchDDPCheckpointIO, two processes."""

    overlay, faults_expected = False, True
    world_size = 2


class TestZero(LowLevelZeroContract):
    """LowLevelZeroCheckpointIO, two processes."""

    overlay, faults_expected = False, True
    world_size = 2
