"""Runs the gate's cases with pytest, and collects what came of them."""

import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import pathlib
import tempfile
from typing import Optional, Tuple

import pytest

from .plugin import STATUS
from .report.case_results import BROKEN, NOT_APPLICABLE, CaseResult, GateResults

#: Cases in which the kit may fail, and nothing else happen, before a run is given up.
MOST_BROKEN = 10

_SUITE = pathlib.Path(__file__).resolve().parent / "suite"


@dataclasses.dataclass(frozen=True)
class Selection:
    """What to run.

    Attributes:
        overlay (bool): whether the overlay is applied.
        classes (Tuple[str, ...]): checkpoint IO classes; empty for all.
        processes (int): the most processes of a configuration; 0 for any number.
        device (str): "cpu" or "cuda".
        files (Tuple[str, ...]): test modules; empty for the gate's own.
        jobs (int): pytest processes at a time.
        junit_xml (Optional[str]): a file for pytest's own report.
    """

    overlay: bool = True
    classes: Tuple[str, ...] = ()
    processes: int = 0
    device: str = "cpu"
    files: Tuple[str, ...] = ()
    jobs: int = 1
    junit_xml: Optional[str] = None

    def arguments(self, deselected):
        """The command line of pytest.

        Args:
            deselected (str): a file for the ids of cases that are left out.

        Returns:
            List[str]: the arguments.
        """
        return [
            *(self.files or [str(_SUITE)]),
            # Whatever configuration lies around where this is run has nothing to do with the gate.
            *("-c", os.devnull, "--rootdir", str(pathlib.Path.cwd() if self.files else _SUITE)),
            *("-p", "colossalai_fork.gate.plugin", "-p", "colossalai_fork.gate.selection", "-p", "no:cacheprovider"),
            *("-q", "-s", "--tb", "short", "-W", "ignore", "--overlay", "on" if self.overlay else "off"),
            *("--gate-device", self.device, "--gate-processes", str(self.processes)),
            *("--gate-classes", ",".join(self.classes), "--gate-deselected", deselected),
            *(("-n", str(self.jobs), "--dist", "loadscope") if self.jobs > 1 else ()),
            *(("--junitxml", self.junit_xml) if self.junit_xml else ()),
        ]


def default_jobs():
    """How many pytest processes to use.

    Returns:
        int: two where pytest-xdist is installed and there are cores for them; cases start processes of their own.
    """
    return 2 if importlib.util.find_spec("xdist") and (os.cpu_count() or 1) > 1 else 1


class Collector:
    """A pytest plugin that makes results of test reports.

    Args:
        results (GateResults): gets the results.
        progress (Progress): is told of the number of cases and of each result.
    """

    def __init__(self, results, progress):
        self.results = results
        self.progress = progress
        self._session = None
        self._pending = {}

    def pytest_sessionstart(self, session):
        self._session = session

    def pytest_collection_finish(self, session):
        self.progress.expect(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        self.progress.expect(len(ids))

    def pytest_collectreport(self, report):
        if report.failed:
            self._add(CaseResult(report.nodeid, "", (), 0, BROKEN, report.longreprtext, 0.0))

    def pytest_runtest_logreport(self, report):
        said = dict(report.user_properties)
        if report.when == "call" or not report.passed:
            status = said.get(STATUS, NOT_APPLICABLE if report.skipped else BROKEN)
            if report.failed and (report.when != "call" or status not in ("violated", BROKEN)):
                status = BROKEN
            self._pending[report.nodeid] = self._result(report, said, status)
        if report.when == "teardown" and report.nodeid in self._pending:
            self._add(self._pending.pop(report.nodeid))

    def _result(self, report, said, status):
        text = report.longreprtext
        if report.skipped:
            text = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else text
        points = tuple(int(point) for point in said.get("contract-points", "").split())
        processes = int(said.get("processes", 0))
        return CaseResult(
            report.nodeid, said.get("checkpoint-io", ""), points, processes, status, text, round(report.duration, 3)
        )

    def _add(self, result):
        self.results.results.append(result)
        self.progress.advance(result)
        if len(self.results.results) == len(self.results.broken()) == MOST_BROKEN and self._session is not None:
            self._session.shouldstop = "no case can be run"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that has ended.

    Attributes:
        results (GateResults): what came of the cases.
        deselected (Tuple[str, ...]): ids of the cases that were left out.
        complete (bool): whether pytest got to the end.
        output (str): what pytest printed.
    """

    results: GateResults
    deselected: Tuple[str, ...]
    complete: bool
    output: str


def run(selection, progress):
    """Run cases.

    Args:
        selection (Selection): which.
        progress (Progress): is told how it goes.

    Returns:
        Run: the run.
    """
    results = GateResults(selection.overlay)
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as directory:
        left_out = os.path.join(directory, "deselected.json")
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = pytest.main(selection.arguments(left_out), plugins=[Collector(results, progress)])
        deselected = ()
        if os.path.exists(left_out):
            deselected = tuple(json.loads(pathlib.Path(left_out).read_text(encoding="utf-8")))
    # All passed, some failed, none collected; anything else is a run that broke off.
    complete = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return Run(results, deselected, complete, printed.getvalue())
