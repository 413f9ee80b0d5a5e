"""Violations that are known: a run that has these and no others passes, and one that no longer has them says so.

A baseline is the JSON report of an earlier run. What counts are the ids of its violated cases and their findings.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Iterable, Mapping

from .case_results import VIOLATED, GateResults


class BaselineError(Exception):
    """The file is not a JSON report of the gate."""


def read(path: str) -> dict[str, tuple[str, ...]]:
    """Read a baseline.

    Args:
        path (str): the file.

    Returns:
        Dict[str, Tuple[str, ...]]: what was found, by the ids of the cases that are known to be violated.

    Raises:
        BaselineError: if the file is something else.
    """
    try:
        with open(path, encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        return {case["id"]: tuple(case["findings"]) for case in cases if case["status"] == VIOLATED}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BaselineError(f"{path} is no JSON report of this gate ({type(error).__name__}: {error})") from error


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A run beside a baseline.

    Attributes:
        known (Tuple[str, ...]): violated as they are known to be.
        new (Tuple[str, ...]): violated, and not known to be.
        changed (Tuple[Tuple[str, str], ...]): known to be violated, but otherwise; with what is different.
        gone (Tuple[str, ...]): known to be violated, and no longer so: they must leave the baseline.
        unknown (Tuple[str, ...]): in the baseline, while there is no such case.
    """

    known: tuple[str, ...]
    new: tuple[str, ...]
    changed: tuple[tuple[str, str], ...]
    gone: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def matches(self) -> bool:
        """Whether the run has the known violations and no others."""
        return not (self.new or self.changed or self.gone or self.unknown)

    def lines(self) -> list[str]:
        """Say how the run differs from the baseline.

        Returns:
            List[str]: a line for each difference.
        """
        return [
            *(f"not in the baseline: {each}" for each in self.new),
            *(f"violated otherwise than the baseline says: {each}: {what}" for each, what in self.changed),
            *(f"no longer violated, so it must leave the baseline: {each}" for each in self.gone),
            *(f"in the baseline, but there is no such case: {each}" for each in self.unknown),
        ]


def compare(known: Mapping[str, tuple[str, ...]], results: GateResults, deselected: Iterable[str] = ()) -> Comparison:
    """Compare a run with a baseline.

    Args:
        known (Mapping[str, Tuple[str, ...]]): findings of the cases that are known to be violated, by their ids.
        results (GateResults): the run.
        deselected (Iterable[str]): ids of cases that the run left out, about which it says nothing.

    Returns:
        Comparison: what is the same and what is not.
    """
    deselected = set(deselected)
    violated = {result.id: result for result in results.violated()}
    others = {result.id for result in results.results} - set(violated)
    # A case in which the kit failed is a failed run already, and its violation may be there still.
    broken = {result.id for result in results.broken()}
    here = [each for each in violated if each in known]
    changed = {each: _difference(known[each], violated[each].findings) for each in here}
    return Comparison(
        known=tuple(each for each in here if not changed[each]),
        new=tuple(each for each in violated if each not in known),
        changed=tuple((each, what) for each, what in changed.items() if what),
        gone=tuple(sorted((set(known) & others) - broken)),
        unknown=tuple(sorted(set(known) - set(violated) - others - deselected)),
    )


def _difference(before: tuple[str, ...], now: tuple[str, ...]) -> str:
    news = [f"now {line!r}" for line in now if line not in before]
    olds = [f"before {line!r}" for line in before if line not in now]
    return "; ".join(news[:2] + olds[:2])
