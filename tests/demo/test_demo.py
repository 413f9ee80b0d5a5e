"""The demo: that what it claims holds here, and that it notices if it does not."""

import dataclasses
import io
import os
import re
import time

import pytest
from click.testing import CliRunner
from rich.console import Console

from colossalai_fork import cli
from colossalai_fork.demo import curves, processes, results, show, terminal_plot
from colossalai_fork.demo.processes import Processes, ProcessFailed

STALE = results.Reproduction("{0: {'momentum_buffer': tensor([1.])}}", "0.8100000023841858")
RIGHT = results.Reproduction("{}", "0.8999999761581421")


def run(after, astray=(50.0, 3.0), with_state=2, digests=("a", "b")):
    return results.Run([2.3, 2.0], list(astray), list(after), with_state, 0.9, 0.0, list(digests))


REFERENCE = run([2.0, 1.0, 0.5], astray=())
TRAINING = results.Training(
    reference=REFERENCE,
    unmodified=run([2.0, 1.9, 1.5], with_state=6, digests=("c", "d")),
    fixed=run([2.0, 1.0, 0.5]),
    parameters=6,
    unmodified_cannot_save="KeyError: 0",
)


@pytest.fixture(scope="module")
def whole_demo(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo")
    plot = directory / "curves.png"
    with pytest.MonkeyPatch.context() as patch:
        # tempfile remembers where TMPDIR pointed when it was first asked.
        patch.setattr(processes.tempfile, "tempdir", str(directory))
        patch.setenv("TMPDIR", str(directory))
        patch.setenv("COLUMNS", "100")
        result = CliRunner().invoke(cli.main, ["demo", "--steps", "30", "--plot", str(plot)])
    return result, directory


def test_the_demo_holds_here(whole_demo):
    result, _ = whole_demo
    assert result.exit_code == 0, result.output
    assert STALE.state in result.output and STALE.parameter in result.output
    assert RIGHT.parameter in result.output
    assert len(re.findall(r"^holds ", result.output, re.MULTILINE)) == 5
    assert "FAILED" not in result.output


def test_the_training_shows_what_the_loader_leaves(whole_demo):
    result, _ = whole_demo
    rows = [[cell.strip() for cell in line.split("│")] for line in result.output.splitlines() if " of 6" in line]
    assert [row[1:3] for row in rows] == [["reference", "2 of 6"], ["colossalai 0.5.0", "6 of 6"], ["fixed", "2 of 6"]]
    assert "ColossalAI's own failed: KeyError: 0" in " ".join(result.output.split())


def test_the_demo_prints_nothing_but_its_own(whole_demo):
    result, _ = whole_demo
    assert not re.search("warn|INFO", result.output, re.IGNORECASE), result.output
    assert result.stderr == ""


def test_the_demo_leaves_only_the_plot_behind(whole_demo):
    _, directory = whole_demo
    assert os.listdir(directory) == ["curves.png"]
    assert (directory / "curves.png").read_bytes().startswith(b"\x89PNG")


def demo_with(monkeypatch, unmodified=STALE, fixed=RIGHT, training=TRAINING):
    monkeypatch.setattr(show, "reproduce", lambda console: (unmodified, fixed))
    monkeypatch.setattr(show, "train", lambda console, steps: training)
    return CliRunner().invoke(cli.main, ["demo"], env={"COLUMNS": "100"})


def test_exit_status_0_if_all_holds(monkeypatch):
    result = demo_with(monkeypatch)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "found, explanation",
    [
        ({"unmodified": RIGHT}, "Is the installed ColossalAI fixed already?"),
        ({"fixed": STALE}, "found: {0: {'momentum_buffer': tensor([1.])}}, 0.8100000023841858"),
        ({"fixed": dataclasses.replace(RIGHT, parameter="0.9")}, "found: {}, 0.9"),
        ({"training": dataclasses.replace(TRAINING, unmodified=TRAINING.fixed)}, "10% would be visible"),
        # The smallest possible difference of one loss.
        ({"training": dataclasses.replace(TRAINING, fixed=run([2.0, 1.0 + 2**-23, 0.5]))}, "found: 1 losses differ"),
        # One rank's parameters or optimizer state differ, the losses do not.
        (
            {"training": dataclasses.replace(TRAINING, fixed=run([2.0, 1.0, 0.5], digests=("a", "c")))},
            "found: 0 losses",
        ),
        # The runs differ before anything is loaded.
        (
            {"training": dataclasses.replace(TRAINING, fixed=run([2.0, 1.0, 0.5], astray=(50.0, 4.0)))},
            "says nothing about",
        ),
    ],
)
def test_exit_status_1_if_a_claim_does_not_hold(monkeypatch, found, explanation):
    result = demo_with(monkeypatch, **found)
    assert result.exit_code == 1, result.output
    assert len(re.findall(r"^FAILED ", result.output, re.MULTILINE)) == 1
    assert explanation in result.output


def test_exit_status_1_if_a_process_fails(monkeypatch, tmp_path):
    broken = tmp_path / "module_that_fails.py"
    broken.write_text("raise SystemExit('there is no such device')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def reproduce(console):
        with Processes([[broken.stem]], str(tmp_path)) as started:
            started.wait()

    monkeypatch.setattr(show, "reproduce", reproduce)
    result = CliRunner().invoke(cli.main, ["demo"])
    assert result.exit_code == 1
    assert "python -m module_that_fails ended with exit status 1.\nthere is no such device" in result.output


def test_processes_that_hang_are_ended(monkeypatch, tmp_path):
    (tmp_path / "module_that_hangs.py").write_text("import time\nprint('so far', flush=True)\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Processes([["module_that_hangs"]] * 2, str(tmp_path)) as started:
        with pytest.raises(ProcessFailed, match="(?s)made no progress for 2 s and was ended.*so far"):
            started.wait(silence=2.0)
    assert [process.returncode for process in started._processes] == [-9, -9]


def test_a_process_that_fails_ends_the_others(monkeypatch, tmp_path):
    (tmp_path / "module_that_hangs.py").write_text("import time\ntime.sleep(600)\n")
    (tmp_path / "module_that_fails.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(processes, "GRACE", 0.2)
    begin = time.monotonic()
    with Processes([["module_that_hangs"], ["module_that_fails"]], str(tmp_path)) as started:
        with pytest.raises(ProcessFailed, match="module_that_fails ended with exit status 3"):
            started.wait()
    assert started._processes[0].returncode == -9
    assert time.monotonic() - begin < 60


def test_progress_keeps_a_slow_process_alive(monkeypatch, tmp_path):
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(2)\nprint('done')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Processes([["slow_module"]], str(tmp_path)) as started:
        assert started.wait(progress=time.monotonic, silence=0.5) == ["done\n"]


@pytest.mark.parametrize("name, complaint", [("missing/curves.png", "there is no directory"), ("curves.doc", "suffix")])
def test_a_plot_that_cannot_be_written_is_refused_at_once(monkeypatch, tmp_path, name, complaint):
    monkeypatch.setattr(show, "show", lambda *arguments: pytest.fail("the demo has started"))
    result = CliRunner().invoke(cli.main, ["demo", "--plot", str(tmp_path / name)])
    assert result.exit_code == 2
    assert complaint in result.output


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(cli.main, ["demo"])
    assert result.exit_code == 1
    assert "colossalai-fork[demo]" in result.output


def test_canvas_draws_lines_with_dots():
    canvas = terminal_plot.Canvas(columns=2, rows=1, braille=True)
    canvas.draw("fixed", [(0.0, 0.0), (1.0, 1.0)])
    # Four by four dots, the diagonal from lower left to upper right.
    assert canvas.row(0).plain == "⡠⠊"


def test_plot_without_colours_tells_the_curves_apart():
    text = terminal_plot.plot(curves.curves_of(TRAINING), width=80, braille=False).plain
    assert text.isascii()
    assert all(len(line) <= 80 for line in text.splitlines())
    drawn = "".join(line.partition("|")[2] for line in text.splitlines())
    assert {"a", "u", "r", "f"} <= set(drawn)
    assert "equal to the reference, bit for bit" in text


def test_plot_survives_losses_that_are_not_finite():
    training = dataclasses.replace(
        TRAINING, unmodified=run([2.0, float("nan"), float("inf")], astray=(1e300, float("inf")))
    )
    assert "loss" in terminal_plot.plot(curves.curves_of(training), width=80).plain


def test_report_fits_80_columns():
    output = io.StringIO()
    console = Console(file=output, width=80)
    console.print(show.report.training_table(TRAINING))
    rows = [line for line in output.getvalue().splitlines() if " of 6" in line]
    assert [row.split("│")[1].strip() for row in rows] == ["reference", "colossalai 0.5.0", "fixed"]
