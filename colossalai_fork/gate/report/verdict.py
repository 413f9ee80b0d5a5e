"""Runs the gate, shows what came of it and decides whether it passed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Iterable, Mapping

from rich.text import Text

from ..run import Run, Selection, run
from ..selection import short_name
from . import baseline, documents
from .progress import GateProgress
from .terminal import contract_tables, reason_lines, slowest_lines, violation_lines

if TYPE_CHECKING:
    from rich.console import Console

    from .case_results import GateResults

PASSED, FAILED, NOT_JUDGED = 0, 1, 2
#: Failures of the kit that are listed one by one.
MOST_FAILURES = 10


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a run came to.

    Attributes:
        code (int): the exit status: 0 if the contract holds, 1 if it does not, 2 if that cannot be said.
        said (str): the same in words.
        lines (Tuple[str, ...]): why there is no judgement, or how the run differs from its baseline.
        known (Tuple[str, ...]): ids of violations that are known, and as they are known.
    """

    code: int
    said: str
    lines: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether there is a judgement."""
        return self.code != NOT_JUDGED


def decide(selection: Selection, done: Run, known: Mapping[str, tuple[str, ...]] | None = None) -> Verdict:
    """Decide what a run came to.

    Args:
        selection (Selection): what was to run.
        done (Run): what did.
        known (Optional[Mapping[str, Tuple[str, ...]]]): findings of violations that are known, by their ids; None without
            a baseline.

    Returns:
        Verdict: the verdict.
    """
    comparison = None if known is None else baseline.compare(known, done.results, done.deselected)
    as_known = () if comparison is None else comparison.known
    failures = not_judged(selection, done)
    if failures:
        return Verdict(NOT_JUDGED, "no judgement", tuple(failures), as_known)
    if comparison is None:
        violated = bool(done.results.violated())
        return Verdict(FAILED, "the contract is violated") if violated else Verdict(PASSED, "the contract holds")
    if comparison.matches:
        return Verdict(PASSED, "only known violations" if as_known else "the contract holds", (), as_known)
    worse = comparison.new or comparison.changed
    said = "the contract is violated" if worse else "the baseline is out of date"
    return Verdict(FAILED, said, tuple(comparison.lines()), as_known)


def judge(
    console: Console,
    selection: Selection,
    reports: Iterable[str] = (),
    known: Mapping[str, tuple[str, ...]] | None = None,
    durations: bool = False,
) -> int:
    """Run the gate and show the results.

    Args:
        console (Console): where to.
        selection (Selection): what to run.
        reports (Iterable[str]): files to write.
        known (Optional[Mapping[str, Tuple[str, ...]]]): see :func:`decide`.
        durations (bool): whether to list the slowest cases.

    Returns:
        int: 0 if the contract holds, 1 if it does not, 2 if that cannot be said.
    """
    with GateProgress(console) as progress:
        done = run(selection, progress)
    verdict = decide(selection, done, known)
    if not done.complete and done.output.strip() and not done.interrupted:
        console.print("What pytest said at the end:", style="magenta")
        console.print(done.output.strip()[-4000:], markup=False, highlight=False, soft_wrap=True)
    _show(console, done.results, durations)
    for path in reports:
        try:
            documents.write(path, done.results, verdict)
        except OSError as error:
            lines = (*verdict.lines, f"{path} cannot be written: {error.strerror}")
            verdict = dataclasses.replace(verdict, code=NOT_JUDGED, said="no judgement", lines=lines)
    for line in verdict.lines:
        console.print(line, style="red" if verdict.judged else "magenta", markup=False, highlight=False, soft_wrap=True)
    console.print(summary(done.results, verdict), soft_wrap=True)
    return verdict.code


def _show(console: Console, results: GateResults, durations: bool) -> None:
    if not results.results:
        return
    for table in contract_tables(results, console.width):
        console.print(table)
        console.print()
    parts = [violation_lines] if results.violated() else []
    parts += [reason_lines] if results.not_applicable() else []
    parts += [slowest_lines] if durations else []
    for part in parts:
        for paragraph in part(results):
            console.print(paragraph, soft_wrap=True)
        console.print()


def not_judged(selection: Selection, done: Run) -> list[str]:
    """Say why the run says nothing about the contract, the cause before what follows from it.

    Args:
        selection (Selection): what was to run.
        done (Run): what did.

    Returns:
        List[str]: the reasons; empty if there is none.
    """
    results = done.results
    if done.interrupted:
        return [f"interrupted after {len(results.results)} cases"]
    lines = list(done.failures)
    by_reason = {}
    for result in results.broken():
        by_reason.setdefault(result.reason, []).append(result.id)
    for reason, ids in list(by_reason.items())[:MOST_FAILURES]:
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        lines.append(f"{reason} [{ids[0]}{more}]")
    if len(by_reason) > MOST_FAILURES:
        lines.append(f"… and {len(by_reason) - MOST_FAILURES} more reasons")
    if not done.complete and not lines:
        lines.append("the run broke off; what pytest said is above")
    elif not results.ran and not lines:
        lines.append("no case ran")
    elif done.expected is not None and len(results.results) < done.expected and not lines:
        lines.append(f"{done.expected - len(results.results)} of {done.expected} cases did not run")
    if not lines:
        present = {short_name(name) for name in results.classes}
        lines = [f"no case of {name} was run" for name in selection.classes if short_name(name) not in present]
    return lines


def summary(results: GateResults, verdict: Verdict) -> Text:
    """The last line.

    Args:
        results (GateResults): the results.
        verdict (Verdict): what they came to.

    Returns:
        Text: the line.
    """
    counted = ", ".join(f"{count} {status}" for status, count in sorted(results.counts().items())) or "no cases"
    known = f" ({len(verdict.known)} known)" if verdict.known else ""
    style = {PASSED: "bold green", FAILED: "bold red", NOT_JUDGED: "bold magenta"}[verdict.code]
    overlay = "on" if results.overlay else "off"
    return Text.assemble((verdict.said, style), f": overlay {overlay}, {counted}{known}")
