"""Runs the gate's cases with pytest, and collects what came of them."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import pathlib
import re
import signal
import tempfile
from typing import TYPE_CHECKING, Any, Iterator, NoReturn

import pytest

from .plugin import FINDINGS, HANDED_OVER, LEFT_OUT, REASON, STATUS
from .report.case_results import BROKEN, HELD, NOT_APPLICABLE, CaseResult, GateResults

if TYPE_CHECKING:
    from types import FrameType

    from .report.progress import GateProgress

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
    """

    overlay: bool = True
    classes: tuple[str, ...] = ()
    processes: int = 0
    device: str = "cpu"
    files: tuple[str, ...] = ()
    jobs: int = 1

    def arguments(self, collected: str) -> list[str]:
        """The command line of pytest.

        Args:
            collected (str): a file for what was collected.

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
            *("--gate-classes", ",".join(self.classes), "--gate-collected", collected),
            *(("-n", str(self.jobs), "--dist", "loadscope") if self.jobs > 1 else ()),
        ]


def default_jobs() -> int:
    """How many pytest processes to use.

    Returns:
        int: two where pytest-xdist is installed and there are cores for them; cases start processes of their own.
    """
    return 2 if importlib.util.find_spec("xdist") and (os.cpu_count() or 1) > 1 else 1


def suite_classes() -> list[str]:
    """The classes of ColossalAI that the gate's own suite holds against the contract; found without importing torch.

    Returns:
        List[str]: their names.
    """
    sources = (_SUITE.parent / "configurations").glob("*.py")
    found = (re.findall(r'^    class_under_test = "(\w+)"', file.read_text(encoding="utf-8"), re.M) for file in sources)
    return sorted({name for names in found for name in names})


class Collector:
    """A pytest plugin that makes results of test reports.

    Args:
        results (GateResults): gets the results.
        progress (GateProgress): is told of the number of cases and of each result.

    Attributes:
        interrupted (bool): whether somebody has ended the run.
    """

    def __init__(self, results: GateResults, progress: GateProgress) -> None:
        self.results = results
        self.progress = progress
        self.interrupted = False
        self._session = None
        self._pending = {}
        self._left_out = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # pytest stops itself the same way, where it cannot collect.
        self.interrupted |= not isinstance(excinfo.value, pytest.Session.Interrupted)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.progress.expect(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self.progress.expect(len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._add(CaseResult(report.nodeid, "", (), 0, BROKEN, _reason(report), report.longreprtext, (), 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        said = dict(report.user_properties)
        if report.when == "call" or not report.passed:
            status = said.get(STATUS, NOT_APPLICABLE if report.skipped else BROKEN)
            if report.failed and (report.when != "call" or status not in ("violated", BROKEN)):
                status = BROKEN
            self._pending[report.nodeid] = self._result(report, said, status)
        # Where a process of pytest has died, there is a report of that and nothing after it.
        if report.when not in ("setup", "call"):
            self._finish(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        # Every process has collected the same.
        self._left_out = getattr(node, "workeroutput", {}).get(HANDED_OVER) or self._left_out

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for nodeid in list(self._pending):
            self._finish(nodeid)
        self._left_out = self._left_out or session.config.stash.get(LEFT_OUT, {}).values()
        for nodeid, checkpoint_io, points, processes, reason in self._left_out:
            found = CaseResult(nodeid, checkpoint_io, tuple(points), processes, NOT_APPLICABLE, reason, reason, (), 0.0)
            self.results.results.append(found)

    def _finish(self, nodeid: str) -> None:
        if nodeid in self._pending:
            self._add(self._pending.pop(nodeid))

    def _result(self, report: pytest.TestReport, said: dict[str, Any], status: str) -> CaseResult:
        reason = said.get(REASON) or _reason(report)
        points = tuple(int(point) for point in said.get("contract-points", "").split())
        return CaseResult(
            id=report.nodeid,
            checkpoint_io=said.get("checkpoint-io", ""),
            points=points,
            processes=int(said.get("processes", 0)),
            status=status,
            reason="" if status == HELD else reason,
            text=report.longreprtext if report.failed else reason,
            findings=tuple(json.loads(said.get(FINDINGS, "[]"))),
            seconds=round(report.duration, 3),
        )

    def _add(self, result: CaseResult) -> None:
        self.results.results.append(result)
        self.progress.advance(result)
        if len(self.results.results) == len(self.results.broken()) == MOST_BROKEN and self._session is not None:
            self._session.shouldstop = "no case can be run"


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    # The error itself and not where it was.
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[0 if crash is not None or not errors else -1]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that has ended.

    Attributes:
        results (GateResults): what came of the cases.
        deselected (Tuple[str, ...]): ids of the cases that were left out.
        complete (bool): whether pytest got to the end.
        output (str): what pytest printed.
        failures (Tuple[str, ...]): why nothing can be said about some class that was asked for.
        expected (Optional[int]): how many cases were to run, if that is known.
        interrupted (bool): whether somebody ended the run.
    """

    results: GateResults
    deselected: tuple[str, ...]
    complete: bool
    output: str
    failures: tuple[str, ...] = ()
    expected: int | None = None
    interrupted: bool = False


class _Ended(KeyboardInterrupt):
    """Somebody asked the process to end."""


@contextlib.contextmanager
def _ends_in_order() -> Iterator[None]:
    # Both Ctrl-C and a request to terminate let pytest put things away.
    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise _Ended

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    # Processes that pytest starts must not take modules of the working directory for Python's own.
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def run(selection: Selection, progress: GateProgress) -> Run:
    """Run cases.

    Args:
        selection (Selection): which.
        progress (GateProgress): is told how it goes.

    Returns:
        Run: the run.
    """
    results = GateResults(selection.overlay)
    printed = io.StringIO()
    collector = Collector(results, progress)
    code, seen = pytest.ExitCode.INTERRUPTED, {}
    with tempfile.TemporaryDirectory() as directory:
        collected = os.path.join(directory, "collected.json")
        try:
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
                _ends_in_order(),
                _safe_path(),
            ):
                code = pytest.main(selection.arguments(collected), plugins=[collector])
        except KeyboardInterrupt:
            collector.interrupted = True
        if os.path.exists(collected):
            seen = json.loads(pathlib.Path(collected).read_text(encoding="utf-8"))
    # All passed, some failed, none collected; anything else is a run that broke off.
    complete = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return Run(
        results,
        tuple(seen.get("deselected", ())),
        complete,
        printed.getvalue(),
        tuple(seen.get("failures", ())),
        seen.get("selected"),
        collector.interrupted,
    )
