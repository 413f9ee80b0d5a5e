"""What the gate makes of test outcomes: counts, reasons, baselines, reports, exit status. No case runs here."""

import importlib.util
import json
import xml.etree.ElementTree as xml

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

from colossalai_fork.gate.report import baseline, documents, verdict
from colossalai_fork.gate.report.case_results import CaseResult, GateResults
from colossalai_fork.gate.report.terminal import cell_text
from colossalai_fork.gate.run import Run, Selection
from colossalai_fork.gate.selection import is_selected, short_name

REASON = "the reason | told"


def result(name, status="held", points=(1,), cls="GeneralCheckpointIO", reason=REASON, findings=("rank 0: kind",)):
    id = f"test_general.py::TestGeneral::test_{name}"
    return CaseResult(id, cls, points, 1, status, reason, f"{reason}\nand where", findings, 0.1)


def run_of(*results, complete=True, **more):
    return Run(GateResults(True, results), (), complete, "what pytest said", **more)


def judge(monkeypatch, run, known=None, selection=Selection(), reports=(), width=200):
    monkeypatch.setattr(verdict, "run", lambda selection, progress: run)
    console = Console(width=width, record=True, file=open("/dev/null", "w"))
    return verdict.judge(console, selection, reports, known), console.export_text()


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
        (
            [result("a"), result("b", "violated"), result("c", "broken")],
            2,
            f"{REASON} [test_general.py::TestGeneral::test_c]",
        ),
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
    ids = {f"test_general.py::TestGeneral::test_{name}": ("rank 0: kind",) for name in known}
    found, text = judge(monkeypatch, run_of(result("a"), result("b", "violated")), ids)
    assert (found, said in text) == (code, True), text


def test_a_violation_that_changes_is_told(monkeypatch):
    known = {"test_general.py::TestGeneral::test_b": ("rank 1: another kind",)}
    code, text = judge(monkeypatch, run_of(result("b", "violated")), known)
    assert code == 1 and "violated otherwise than the baseline says" in text
    assert "now 'rank 0: kind'; before 'rank 1: another kind'" in text


@pytest.mark.parametrize(
    "more, said",
    [
        ({"failures": ("there is no class generl; there are GeneralCheckpointIO",)}, "there is no class generl"),
        ({"expected": 3}, "2 of 3 cases did not run"),
        ({"interrupted": True, "complete": False}, "interrupted after 1 cases"),
    ],
)
def test_what_is_missing_is_no_judgement(monkeypatch, more, said):
    code, text = judge(monkeypatch, run_of(result("a"), **more))
    assert code == 2 and said in text


def test_a_report_that_cannot_be_written_is_no_judgement(monkeypatch, tmp_path):
    code, text = judge(monkeypatch, run_of(result("a")), reports=[str(tmp_path / "gone" / "report.json")])
    assert code == 2 and "cannot be written: No such file or directory" in text


def test_all_reports_say_the_same(monkeypatch, tmp_path):
    cases = {
        "holds": ([result("a")], None),
        "violated": ([result("a"), result("b", "violated")], None),
        "broken": ([result("a"), result("b", "violated"), result("c", "broken")], None),
        "nothing": ([], None),
        "known": ([result("a"), result("b", "violated")], {result("b").id: ("rank 0: kind",)}),
        "gone": ([result("a")], {result("a").id: ("rank 0: kind",)}),
    }
    for name, (results, known) in cases.items():
        files = [str(tmp_path / f"{name}{suffix}") for suffix in documents.SUFFIXES]
        code, text = judge(monkeypatch, run_of(*results), known, reports=files)
        content = json.loads((tmp_path / f"{name}.json").read_text())
        assert f"{content['verdict']}: overlay on" in text
        assert (
            (tmp_path / f"{name}.md").read_text().startswith(f"# Optimizer checkpoint contract: {content['verdict']}\n")
        )
        (suite,) = xml.parse(tmp_path / f"{name}.xml").getroot()
        bad = int(suite.get("failures")) + int(suite.get("errors"))
        assert (bad == 0) == (code == 0), name
        assert (int(suite.get("errors")) > 0) == (code == 2), name
        text = (tmp_path / f"{name}.md").read_text().replace("\\|", "|")
        assert all(line in text for line in content["because"])


def test_nothing_is_cropped_in_a_narrow_terminal(monkeypatch):
    names = [
        f"{name}CheckpointIO" for name in ("General", "LowLevelZero", "HybridParallel", "TorchFSDP", "TorchDDP", "MoE")
    ]
    reason = "rank 0: " + "a long reason " * 20 + "with an end"
    results = [result(f"case_{number}", "violated", (1, 2), name, reason) for number, name in enumerate(names)]
    _, text = judge(monkeypatch, run_of(*results), width=80)
    assert "…" not in text and text.count("with an end") == len(names)
    table = text[: text.index("Violations")]
    assert max(map(len, table.splitlines())) <= 80
    assert all(name.removesuffix("CheckpointIO") in table for name in names) and table.count("violated (1 of 1)") == 12


def test_baseline_says_nothing_of_what_was_left_out():
    results = GateResults(True, [result("a")])
    assert baseline.compare({"left out": ()}, results, ["left out"]).matches
    assert not baseline.compare({"left out": ()}, results).matches
    # Nor is a violation gone because the kit failed.
    broken = result("b", "broken")
    assert not baseline.compare({broken.id: ()}, GateResults(True, [broken])).gone


def test_json_report_is_a_baseline(tmp_path):
    results = GateResults(False, [result("a"), result("b", "violated", (1, 4))])
    path = str(tmp_path / "report.json")
    documents.write(path, results, verdict.decide(Selection(), Run(results, (), True, "")))
    assert baseline.read(path) == {results.results[1].id: ("rank 0: kind",)}
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["overlay"] == "off"
    assert content["contract"]["GeneralCheckpointIO"]["4"] == "violated"
    for text in ("", "[]", '{"cases": [{}]}', '{"cases": [{"id": "a", "status": "violated"}]}'):
        (tmp_path / "report.json").write_text(text)
        with pytest.raises(baseline.BaselineError):
            baseline.read(path)


def test_markdown_report(tmp_path):
    results = GateResults(True, [result("b", "violated"), result("c", "not applicable", (7,)), result("d", "broken")])
    documents.write(str(tmp_path / "report.md"), results, verdict.decide(Selection(), Run(results, (), True, ""), {}))
    text = (tmp_path / "report.md").read_text()
    assert "| 1. replace | broken (1 of 2) |" in text
    assert "| GeneralCheckpointIO | `test_b` | 1 | the reason \\| told |" in text
    assert "| 7. linear time | the reason \\| told | GeneralCheckpointIO |" in text
    assert "# Optimizer checkpoint contract: no judgement" in text and "The gate itself failed" in text


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
        (["--processes", "0"], "is not in the range"),
        (["--baseline", __file__], "is no JSON report of this gate"),
        (
            ["--classes", "general,generl"],
            "there is no class generl; there are GeminiCheckpointIO, GeneralCheckpointIO",
        ),
    ],
)
def test_wrong_arguments_are_told_before_anything_runs(arguments, said):
    from colossalai_fork.cli.gate import gate

    outcome = CliRunner().invoke(gate, arguments, env={"COLUMNS": "200"})
    assert outcome.exit_code == 2 and said in outcome.output


@pytest.mark.parametrize("missing, arguments", [("pytest", []), ("xdist", ["--jobs", "2"])])
def test_a_missing_library_is_no_judgement(monkeypatch, missing, arguments):
    from colossalai_fork.cli.gate import gate

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == missing else find(name, *more))
    outcome = CliRunner().invoke(gate, arguments)
    assert outcome.exit_code == 2 and "colossalai-fork[gate]" in outcome.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_no_judgement():
    from colossalai_fork.cli.gate import gate

    outcome = CliRunner().invoke(gate, ["--device", "cuda"])
    assert outcome.exit_code == 2 and "needs a CUDA device" in outcome.output


def test_a_gate_that_fails_is_no_judgement(monkeypatch):
    from colossalai_fork.cli.gate import gate

    monkeypatch.setattr(verdict, "run", lambda selection, progress: 1 / 0)
    outcome = CliRunner().invoke(gate, [])
    assert outcome.exit_code == 2 and "the gate itself failed: ZeroDivisionError" in outcome.output


def test_the_suite_has_the_classes_that_are_listed():
    from colossalai_fork.gate import configurations
    from colossalai_fork.gate.run import suite_classes

    names = {getattr(configurations, name).class_under_test for name in configurations.__all__}
    assert names - {"CheckpointIO"} == set(suite_classes())
