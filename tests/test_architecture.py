"""ARCHITECTURE.md names modules: all of them exist."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent


def test_every_module_it_names_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/*") if ".tox" not in path.parts}
    named = set(re.findall(r"[\w/]*\w+\.(?:py|ini)\b|\b[\w/]+/(?=[`\s])", text))
    assert len(named) > 30
    missing = {name for name in named if not any(f"/{file}/".find(f"/{name.strip('/')}/") >= 0 for file in files)}
    assert not missing
