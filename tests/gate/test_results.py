"""What the gate makes of test outcomes: counts, reasons, baselines, reports, exit status. No case runs here."""

import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from colossalai_fork.gate.report import baseline, documents, verdict
from colossalai_fork.gate.report.case_results import CaseResult, GateResults
from colossalai_fork.gate.report.terminal import cell_text
from colossalai_fork.gate.run import Run, Selection
from colossalai_fork.gate.selection import is_selected, short_name

REASON = "the reason | told"


def result(name, status="held", points=(1,), cls="GeneralCheckpointIO", text=REASON):
    return CaseResult(f"test_general.py::TestGeneral::test_{name}", cls, points, 1, status, text, 0.1)


def run_of(*results, complete=True):
    return Run(GateResults(True, results), (), complete, "what pytest said")


def judge(monkeypatch, run, known=None, selection=Selection()):
    monkeypatch.setattr(verdict, "run", lambda selection, progress: run)
    console = Console(width=200, record=True, file=open("/dev/null", "w"))
    return verdict.judge(console, selection, (), known), console.export_text()


@pytest.mark.parametrize(
    "text, reason",
    [
        ("violated on rank 0, 1: Traceback …\nm.ContractViolation: rank 0: lost\nrank 1: lost", "rank 0: lost"),
        ("died on rank 1: the process was killed by signal 9\nstack", "the process was killed by signal 9"),
        ("not applicable on the only rank: it keeps all", "it keeps all"),
        ("broken on the only rank: Traceback (most …):\n  File\nValueError: what\n", "ValueError: what"),
        ("[gw1] linux -- Python 3\nhung on rank 0: not finished", "not finished"),
        ("\x1b[1mred\x1b[0m", "red"),
        ("", ""),
    ],
)
def test_reason_in_one_line(text, reason):
    assert result("a", "violated", text=text).reason == reason


def test_cell_says_the_worst():
    results = GateResults(True, [result("a"), result("b", "violated", (1, 2)), result("c", "not applicable", (3,))])
    assert cell_text(results.cell("GeneralCheckpointIO", 1)) == "violated (1 of 2)"
    assert cell_text(results.cell("GeneralCheckpointIO", 2)) == "violated (1 of 1)"
    assert cell_text(results.cell("GeneralCheckpointIO", 3)) == "not applicable"
    assert cell_text(results.cell("GeneralCheckpointIO", 4)) == "no case ran"
    assert results.not_applicable() == {(3, REASON): ["GeneralCheckpointIO"]}


@pytest.mark.parametrize(
    "results, code, said",
    [
        ([result("a")], 0, "the contract holds"),
        ([result("a"), result("b", "violated")], 1, "the contract is violated"),
        ([result("a"), result("b", "violated"), result("c", "broken")], 2, "the kit failed in"),
        ([result("a", "not applicable")], 2, "no case ran"),
        ([], 2, "no case ran"),
    ],
)
def test_exit_status(monkeypatch, results, code, said):
    found, text = judge(monkeypatch, run_of(*results))
    assert (found, said in text) == (code, True), text


def test_a_run_that_broke_off_is_no_judgement(monkeypatch):
    code, text = judge(monkeypatch, run_of(result("a"), complete=False))
    assert code == 2 and "what pytest said" in text


def test_a_class_without_cases_is_no_judgement(monkeypatch):
    code, text = judge(monkeypatch, run_of(result("a")), selection=Selection(classes=("general", "generl")))
    assert code == 2 and "no case of generl was run" in text and "of general was" not in text


@pytest.mark.parametrize(
    "known, code, said",
    [
        (["b"], 0, "only known violations"),
        ([], 1, "not in the baseline"),
        (["a", "b"], 1, "no longer violated, so it must leave the baseline"),
        (["b", "elsewhere"], 1, "there is no such case"),
    ],
)
def test_baseline_is_strict(monkeypatch, known, code, said):
    ids = [f"test_general.py::TestGeneral::test_{name}" for name in known]
    found, text = judge(monkeypatch, run_of(result("a"), result("b", "violated")), ids)
    assert (found, said in text) == (code, True), text


def test_baseline_says_nothing_of_what_was_left_out():
    results = GateResults(True, [result("a")])
    assert baseline.compare(["left out"], results, ["left out"]).matches
    assert not baseline.compare(["left out"], results).matches
    # Nor is a violation gone because the kit failed.
    broken = result("b", "broken")
    assert not baseline.compare([broken.id], GateResults(True, [broken])).gone


def test_json_report_is_a_baseline(tmp_path):
    results = GateResults(False, [result("a"), result("b", "violated", (1, 4))])
    path = str(tmp_path / "report.json")
    documents.write(path, results)
    assert baseline.read(path) == [results.results[1].id]
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["overlay"] == "off"
    assert content["contract"]["GeneralCheckpointIO"]["4"] == "violated"
    for text in ("", "[]", '{"cases": [{}]}'):
        (tmp_path / "report.json").write_text(text)
        with pytest.raises(baseline.BaselineError):
            baseline.read(path)


def test_markdown_report(tmp_path):
    results = GateResults(True, [result("b", "violated"), result("c", "not applicable", (7,)), result("d", "broken")])
    documents.write(str(tmp_path / "report.md"), results, baseline.compare(["gone"], results))
    text = (tmp_path / "report.md").read_text()
    assert "| 1. replace | broken (1 of 2) |" in text
    assert "| GeneralCheckpointIO | `test_b` | 1 | the reason \\| told |" in text
    assert "| 7. linear time | the reason \\| told | GeneralCheckpointIO |" in text
    assert "Not as in the baseline: unknown\n\n- `gone`" in text and "The gate itself failed" in text


class Contract:
    class_under_test = "LowLevelZeroCheckpointIO"
    world_size = 2


def test_selection():
    assert short_name("LowLevelZeroCheckpointIO") == short_name("low_level_zero") == "lowlevelzero"
    assert is_selected(Contract, (), 0, "cpu", False)
    assert is_selected(Contract, {"lowlevelzero"}, 2, "cpu", False)
    assert not is_selected(Contract, {"general"}, 0, "cpu", False)
    assert not is_selected(Contract, (), 1, "cpu", False)
    assert not is_selected(Contract, (), 0, "cpu", True) and is_selected(Contract, (), 0, "cuda", True)
    assert not is_selected(None, (), 0, "cpu", False) and not is_selected(object, (), 0, "cpu", True)
    assert is_selected(object, (), 0, "cuda", True)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--report", "report.txt"], "must be one of .json, .xml, .md"),
        (["--report", "no/such/directory/report.json"], "there is no directory"),
        (["--report", "a.xml", "--report", "b.xml"], "there can be one JUnit file"),
        (["--processes", "0"], "is not in the range"),
        (["--baseline", __file__], "is no JSON report of the gate"),
    ],
)
def test_wrong_arguments_are_told_before_anything_runs(arguments, said):
    from colossalai_fork.cli.gate import gate

    outcome = CliRunner().invoke(gate, arguments, env={"COLUMNS": "200"})
    assert outcome.exit_code != 0 and said in outcome.output
