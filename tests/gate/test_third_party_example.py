"""The gate's report on checkpoint IO classes of third parties, and on cases whose processes end badly."""

import json
import os
import pathlib
import re
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = PROJECT / "examples" / "third_party"

ENDS_BADLY = """
import os, signal, time
from colossalai_fork.gate.contract import ContractBase, case

class TestEndsBadly(ContractBase):
    class_under_test = "BadCheckpointIO"
    world_size = 2

    @case(3)
    def test_killed(self):
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self.everyone(None)

    @case(3)
    def test_left(self):
        if self.rank == 0:
            os._exit(7)
        self.everyone(None)

    @case(3, deadline=2.0)
    def test_hangs(self):
        if self.rank == 1:
            time.sleep(1000)
        self.everyone(None)

    @case(1)
    def test_sound(self):
        self.everyone(None)
"""


def gate(directory, *arguments):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "colossalai_fork",
            "gate",
            *map(str, arguments),
            "--jobs",
            "1",
            "--report",
            "report.json",
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "COLUMNS": "160"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    report = pathlib.Path(directory, "report.json")
    return done, json.loads(report.read_text()) if report.exists() else None


def test_the_fault_is_reported(tmp_path):
    done, report = gate(tmp_path, EXAMPLE / "test_warm_start.py", "--report", "report.md", "--report", "report.xml")
    assert done.returncode == 1, done.stdout
    assert re.search(r"^\d+ of \d+ cases, [1-9]\d* violated, \d+ s$", done.stdout, re.MULTILINE)
    contract = report["contract"]["WarmStartCheckpointIO"]
    # Cases of points 4 and 8 also ask whether the state was replaced.
    assert {point for point, status in contract.items() if status == "violated"} == {"1", "4", "8"}, done.stdout
    assert {point for point, status in contract.items() if status == "held"} == {"2", "3", "6", "7", "9", "10"}
    assert contract["5"] == "not applicable" and "the class loads no shards" in done.stdout
    assert "broken" not in report["counts"]
    violated = {
        case["id"].partition("::test_")[2].partition("[")[0] for case in report["cases"] if case["status"] == "violated"
    }
    assert {
        "parameter_without_saved_state_has_none",
        "empty_checkpoint_leaves_no_state",
        "old_state_is_released_first",
    } <= violated
    assert "full_checkpoint" not in violated
    assert "the contract is violated: overlay on" in done.stdout
    for text in ((tmp_path / "report.md").read_text(), done.stdout):
        assert "expected none" in text and "violated (" in text
    # What the reader is shown in the example's text is what the gate prints.
    shown = (EXAMPLE / "README.md").read_text()
    for line in ("parameter without saved state has none", "old state is released first", "the contract is violated"):
        assert line in shown and line in done.stdout
    assert 'name="contract-status" value="violated"' in (tmp_path / "report.xml").read_text()


def test_a_rank_that_ends_badly_is_a_violation_of_its_case(tmp_path):
    module = tmp_path / "test_ends_badly.py"
    module.write_text(ENDS_BADLY)
    done, report = gate(tmp_path, module)
    assert done.returncode == 1, done.stdout
    cases = {case["id"].rpartition("_")[2]: case for case in report["cases"]}
    assert {name: case["status"] for name, case in cases.items()} == {
        "killed": "violated",
        "left": "violated",
        "hangs": "violated",
        "sound": "held",
    }
    assert "killed by signal 9" in cases["killed"]["text"]
    assert "exit code 7" in cases["left"]["text"]
    assert "not finished" in cases["hangs"]["reason"]


def test_a_kit_that_fails_is_no_judgement(tmp_path):
    module = tmp_path / "test_broken.py"
    module.write_text("this is no python\n")
    done, report = gate(tmp_path, module)
    assert done.returncode == 2, done.stdout
    assert "no judgement" in done.stdout and "SyntaxError" in done.stdout
