"""The installed ColossalAI, for tests that want it without this project's code in it."""

import importlib.util
from pathlib import Path

import pytest

_found = importlib.util.find_spec("colossalai")
ROOT = Path(_found.submodule_search_locations[0]) if _found else None
IS_FIXED = ROOT is not None and (ROOT / "checkpoint_io" / "restore.py").exists()

needs_unmodified_colossalai = [
    pytest.mark.skipif(ROOT is None, reason="needs colossalai"),
    pytest.mark.skipif(IS_FIXED, reason="the installed ColossalAI has the fix"),
]
