"""Checkpoints that cross between Gemini or FSDP and the classes whose ids and global shapes are the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..contract.base import ContractBase
from ..contract.cases.crossing import cross
from ..contract.comparison import differences, look_at
from ..contract.subjects import Recipe, Subject
from . import test_gemini, test_general, test_low_level_zero, test_torch_ddp, test_torch_fsdp

if TYPE_CHECKING:
    from ..plugin import Gate


class UsesGeminisAdam:
    """A configuration whose optimizer is the one that Gemini takes."""

    def recipe(self, **changes: Any) -> Recipe:
        return super().recipe(**{"optimizer": "HybridAdam", **changes})

    def not_held(self, source: Subject, saved: dict[str, Any]) -> list[str]:
        # It makes an entry for every parameter as it loads.
        loaded = {place: state for place, state in look_at(self.native_twin(source, saved))["state"].items() if state}
        return differences(loaded, look_at(source.inner)["state"], "what was saved: ")


class General(UsesGeminisAdam, test_general.TestGeneral):
    """One process."""

    __test__ = False


class DDP(UsesGeminisAdam, test_torch_ddp.TestTorchDDP):
    """Two processes."""

    __test__ = False


class DDPAlone(DDP):
    """One process."""

    world_size = 1


class ZeroOnTwo(UsesGeminisAdam, test_low_level_zero.TestZeroStage1):
    """Two processes."""

    __test__ = False


PAIRS = [
    (test_gemini.TestGemini, General),
    (test_gemini.TestGemini, DDP),
    (test_gemini.TestGemini, DDPAlone),
    (test_gemini.TestGemini, ZeroOnTwo),
    (test_gemini.TestGeminiOnFour, General),
    (test_gemini.TestGemini, test_gemini.TestGeminiAlone),
    (test_gemini.TestGeminiAlone, test_gemini.TestGeminiOnFour),
    (test_gemini.TestGeminiGathered, test_gemini.TestGemini),
    (test_gemini.TestGemini, test_gemini.TestGeminiExtraDataParallel),
    (General, test_gemini.TestGemini),
    (DDP, test_gemini.TestGemini),
    (DDPAlone, test_gemini.TestGemini),
    (ZeroOnTwo, test_gemini.TestGemini),
    (test_torch_fsdp.TestTorchFSDP, test_general.TestGeneral),
    (test_torch_fsdp.TestTorchFSDP, test_low_level_zero.TestZeroStage1),
    (test_torch_fsdp.TestTorchFSDP, test_torch_fsdp.TestTorchFSDPOnFour),
    (test_torch_fsdp.TestTorchFSDPAlone, test_torch_fsdp.TestTorchFSDP),
    (test_general.TestGeneral, test_torch_fsdp.TestTorchFSDP),
    (test_low_level_zero.TestZeroStage1, test_torch_fsdp.TestTorchFSDPWithoutSharding),
]


@pytest.mark.parametrize("saver, loader", PAIRS, ids=lambda configuration: configuration.__name__)
def test_loads_what_another_configuration_saved(
    saver: type[ContractBase], loader: type[ContractBase], colossalai_fork_gate: Gate, tmp_path: Path
) -> None:
    """The loader holds its part of what the saver held, bit for bit."""
    cross(colossalai_fork_gate, saver, loader, tmp_path)
