"""Runs the gate, shows what came of it and decides whether it passed."""

from rich.text import Text

from ..run import run
from ..selection import short_name
from . import baseline, documents
from .progress import GateProgress
from .terminal import contract_table, reasons_table, shortened, violations_table

PASSED, FAILED, NOT_JUDGED = 0, 1, 2


def judge(console, selection, reports=(), known=None):
    """Run the gate and show the results.

    Args:
        console (Console): where to.
        selection (Selection): what to run.
        reports (Iterable[str]): files to write.
        known (Optional[List[str]]): ids of violations that are known; None without a baseline.

    Returns:
        int: 0 if the contract holds, 1 if it does not, 2 if that cannot be said.
    """
    with GateProgress(console) as progress:
        done = run(selection, progress)
    results = done.results
    comparison = None if known is None else baseline.compare(known, results, done.deselected)
    for path in reports:
        documents.write(path, results, comparison)
    _show(console, results)
    failures = not_judged(selection, done)
    for line in failures:
        console.print(line, style="magenta", markup=False, soft_wrap=True)
    if not done.complete:
        console.print(done.output[-4000:], markup=False, highlight=False, soft_wrap=True)
    if comparison is not None:
        for text in differences(comparison):
            console.print(text, style="red", markup=False, soft_wrap=True)
        passed = comparison.matches
    else:
        passed = not results.violated()
    code = NOT_JUDGED if failures else PASSED if passed else FAILED
    console.print(summary(results, comparison, code), soft_wrap=True)
    return code


def _show(console, results):
    if not results.results:
        return
    console.print(contract_table(results))
    if results.violated():
        console.print()
        console.print(violations_table(results))
    if results.not_applicable():
        console.print()
        console.print(reasons_table(results))
    console.print()


def not_judged(selection, done):
    """Say why the run says nothing about the contract.

    Args:
        selection (Selection): what was to run.
        done (Run): what did.

    Returns:
        List[str]: the reasons; empty if there is none.
    """
    results = done.results
    lines = [f"the kit failed in {result.id}: {shortened(result.reason, 400)}" for result in results.broken()[:10]]
    if len(results.broken()) > 10:
        lines.append(f"… and in {len(results.broken()) - 10} more cases")
    if not done.complete:
        lines.append("the run broke off; the end of what pytest said:")
    elif not results.ran:
        lines.append("no case ran")
    present = {short_name(name) for name in results.classes}
    lines += [f"no case of {name} was run" for name in selection.classes if short_name(name) not in present]
    return lines


def differences(comparison):
    """Say how the violations differ from those of a baseline.

    Args:
        comparison (Comparison): the run beside the baseline.

    Returns:
        List[str]: a line for each violation that is new or gone.
    """
    return [
        *(f"not in the baseline: {each}" for each in comparison.new),
        *(f"no longer violated, so it must leave the baseline: {each}" for each in comparison.gone),
        *(f"in the baseline, but there is no such case: {each}" for each in comparison.unknown),
    ]


def summary(results, comparison, code):
    """The last line.

    Args:
        results (GateResults): the results.
        comparison (Optional[Comparison]): the run beside the baseline.
        code (int): the exit status.

    Returns:
        Text: the line.
    """
    counted = ", ".join(f"{count} {status}" for status, count in sorted(results.counts().items())) or "no cases"
    known = f" ({len(comparison.known)} known)" if comparison is not None and comparison.known else ""
    said = {PASSED: "the contract holds", FAILED: "the contract is violated", NOT_JUDGED: "no judgement"}[code]
    if code == PASSED and known:
        said = "only known violations"
    elif code == FAILED and comparison is not None and not comparison.new:
        said = "the baseline is out of date"
    style = {PASSED: "bold green", FAILED: "bold red", NOT_JUDGED: "bold magenta"}[code]
    overlay = "on" if results.overlay else "off"
    return Text.assemble((said, style), f": overlay {overlay}, {counted}{known}")
