"""The gate's pytest plugin: found through its entry point, free where it is not used, and never there twice."""

import pathlib
import subprocess
import sys

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]

NAMES_THE_PLUGIN = 'pytest_plugins = ["colossalai_fork.gate.plugin"]\n'
IMPORTS_NOTHING = """
import sys

def test_nothing_heavy_is_imported(request):
    assert request.config.getoption("--overlay") == "off"
    assert request.config.pluginmanager.has_plugin("colossalai_fork.gate.plugin")
    assert not {"torch", "colossalai", "numpy"} & set(sys.modules)
"""


def run_pytest(directory, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--overlay", "off", *arguments],
        cwd=directory,
        env={"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("conftest", ["", NAMES_THE_PLUGIN])
def test_plugin_is_there_once_and_imports_nothing_heavy(tmp_path, conftest):
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_imports.py").write_text(IMPORTS_NOTHING)
    for arguments in ((), ("-p", "colossalai_fork.gate.plugin")):
        done = run_pytest(tmp_path, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed" in done.stdout


def test_the_gate_is_found_by_its_package_name(tmp_path):
    done = run_pytest(
        tmp_path, "--pyargs", "colossalai_fork.gate", "--collect-only", "-q", "-k", "test_full_checkpoint"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_general.py::TestGeneral::test_full_checkpoint[torch-sharded]" in done.stdout
