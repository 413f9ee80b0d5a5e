"""The command line, without what the commands do."""

import importlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import colossalai_fork
from colossalai_fork import cli
from colossalai_fork.overlay.inspection import State, Status


def run_status(monkeypatch, *rows):
    monkeypatch.setattr(colossalai_fork, "status", lambda: list(rows), raising=False)
    return CliRunner().invoke(cli.main, ["status"], env={"COLUMNS": "120"})


def test_status_of_a_colossalai_that_fits(monkeypatch):
    result = run_status(
        monkeypatch,
        Status("colossalai.a:load", "colossalai/a.py", State.ORIGINAL, "0.5.0", "series"),
        Status("colossalai.a:save", "colossalai/a.py", State.ALREADY_FIXED, "", "series"),
    )
    assert result.exit_code == 0, result.output
    assert "0.5.0" in result.output and "already fixed" in result.output
    assert "apply() would put in 1 of 2 functions; the others are ours already." in result.output


def test_status_of_a_fixed_colossalai(monkeypatch):
    result = run_status(monkeypatch, Status("colossalai.a:save", "colossalai/a.py", State.ALREADY_FIXED, "", "series"))
    assert result.exit_code == 0
    assert "All of them are ours already." in result.output


@pytest.mark.parametrize("state", [State.UNKNOWN, State.MISSING])
def test_status_of_a_colossalai_that_does_not_fit(monkeypatch, state):
    detail = "@@ line 3 @@\n+    state[key] = value[0]"
    result = run_status(
        monkeypatch,
        Status("colossalai.a:load", "colossalai/a.py", state, detail, "series"),
        Status("colossalai.a:save", "colossalai/a.py", State.ORIGINAL, "0.5.0", "series"),
    )
    assert result.exit_code == 1
    assert detail in result.output
    assert "apply() would refuse: 1 of 2 functions" in result.output


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_is_a_click_command_of_its_name(name):
    command = cli.main.get_command(None, name)
    assert isinstance(command, click.Command)
    assert command.name == name
    assert importlib.import_module(f"colossalai_fork.cli.{name}").__doc__


def test_help_lists_the_commands_and_an_unknown_one_is_an_error():
    result = CliRunner().invoke(cli.main, ["--help"])
    assert result.exit_code == 0
    assert all(f"\n  {name} " in result.output for name in cli.COMMANDS)
    assert CliRunner().invoke(cli.main, ["no-such-command"]).exit_code == 2


def test_help_imports_neither_torch_nor_colossalai():
    script = (
        "import sys\nfrom colossalai_fork.cli import main\nmain(['--help'], standalone_mode=False)\n"
        "assert not {'torch', 'colossalai'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
