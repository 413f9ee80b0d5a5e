"""The installed ColossalAI, for tests that want it without this project's code in it."""

import functools
import importlib.util
import json
from pathlib import Path

import pytest
import torch

_found = importlib.util.find_spec("colossalai")
ROOT = Path(_found.submodule_search_locations[0]) if _found else None
IS_FIXED = ROOT is not None and (ROOT / "checkpoint_io" / "restore.py").exists()

needs_unmodified_colossalai = [
    pytest.mark.skipif(ROOT is None, reason="needs colossalai"),
    pytest.mark.skipif(IS_FIXED, reason="the installed ColossalAI has the fix"),
]

_BASELINE = Path(__file__).parent / "gate" / "unmodified.json"


class Unmodified:
    """Judges a contract the other way round: the cases that the baseline lists hold, and all others are violated."""

    overlay = False
    seconds_for_a_hang = 3.0

    def judge(self, outcome):
        """Fail the test if unmodified ColossalAI does not come off as the baseline says."""
        name = self.running.name
        expected = _holds(f"{type(self).__module__}::{type(self).__name__}", name)
        if outcome.status.value == ("held" if expected else "violated"):
            return
        if expected:
            pytest.fail(
                f"unmodified ColossalAI violates a case that {_BASELINE.name} says holds:\n{outcome.describe()}", False
            )
        pytest.fail(
            f"unmodified ColossalAI passes {name}, so it guards nothing. If it is to say what must stay as it is, add it to "
            f"{_BASELINE.name}",
            False,
        )


def _holds(cls, name):
    method, _, arguments = name.rstrip("]").partition("[")
    return any(arguments in each.get(cls, {}).get(method, ()) for each in _baseline())


@functools.lru_cache
def _baseline():
    sections = json.loads(_BASELINE.read_text(encoding="utf-8"))
    # Before 2.6, torch opened any pickle.
    old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6)
    return [classes for when, classes in sections.items() if old or when == "with any torch"]
