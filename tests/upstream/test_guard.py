"""The guard under which the patched tree is checked must notice what it is there for."""

import pathlib
import subprocess
import sys

import pytest

UPSTREAM = pathlib.Path(__file__).resolve().parent
PROJECT = UPSTREAM.parents[1]


@pytest.fixture
def python(tmp_path):
    package = tmp_path / "colossalai"
    package.mkdir()
    (package / "__init__.py").write_text("")

    def run(code, module=None):
        """Run code under the guard; ``module`` is the source of ``colossalai.module``."""
        if module is not None:
            (package / "module.py").write_text(module)
        path = ":".join(map(str, (UPSTREAM / "forbid", tmp_path, PROJECT)))
        return subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True
        )

    return run


def test_the_kit_may_be_imported(python):
    done = python("import colossalai_fork, colossalai_fork.gate.cpu.replacements; print('fine')")
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("name", ["checkpoint_io", "overlay", "overlay.table", "patchset"])
@pytest.mark.parametrize("statement", ["import {}", "import importlib; importlib.import_module('{}')"])
def test_the_forks_code_may_not(name, statement, python):
    done = python(statement.format(f"colossalai_fork.{name}"))
    assert f"imports colossalai_fork.{name.split('.')[0]}" in done.stderr and "which is switched off" in done.stderr


def test_the_forks_code_may_not_be_taken_from_the_package(python):
    done = python("from colossalai_fork import checkpoint_io")
    assert "imports colossalai_fork.checkpoint_io, which is switched off" in done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "import colossalai_fork",
        "from colossalai_fork.gate.cpu import replacements",
        "import importlib; importlib.import_module('colossalai_fork.gate.cpu.replacements')",
        "def late():\n    import colossalai_fork.gate\nlate()",
    ],
)
def test_colossalai_gets_nothing_of_the_fork(module, python):
    done = python("import colossalai_fork.gate; import colossalai.module", module)
    assert "ForkIsForbidden: colossalai.module imports colossalai_fork" in done.stderr
