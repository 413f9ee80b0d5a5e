"""Violations that are known: a run that has these and no others passes, and one that no longer has them says so.

A baseline is the JSON report of an earlier run. Nothing of it counts but the ids of its violated cases.
"""

import dataclasses
import json
from typing import Tuple

from .case_results import VIOLATED


class BaselineError(Exception):
    """The file is not a JSON report of the gate."""


def read(path):
    """Read a baseline.

    Args:
        path (str): the file.

    Returns:
        List[str]: ids of the cases that are known to be violated.

    Raises:
        BaselineError: if the file is something else.
    """
    try:
        with open(path, encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        return [case["id"] for case in cases if case["status"] == VIOLATED]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BaselineError(f"{path} is no JSON report of the gate ({type(error).__name__}: {error})") from error


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A run beside a baseline.

    Attributes:
        known (Tuple[str, ...]): violated, and known to be.
        new (Tuple[str, ...]): violated, and not known to be.
        gone (Tuple[str, ...]): known to be violated, and no longer so: they must leave the baseline.
        unknown (Tuple[str, ...]): in the baseline, while there is no such case.
    """

    known: Tuple[str, ...]
    new: Tuple[str, ...]
    gone: Tuple[str, ...]
    unknown: Tuple[str, ...]

    @property
    def matches(self):
        """Whether the run has the known violations and no others."""
        return not (self.new or self.gone or self.unknown)


def compare(known, results, deselected=()):
    """Compare a run with a baseline.

    Args:
        known (Iterable[str]): ids of the cases that are known to be violated.
        results (GateResults): the run.
        deselected (Iterable[str]): ids of cases that the run left out, about which it says nothing.

    Returns:
        Comparison: what is the same and what is not.
    """
    known, deselected = set(known), set(deselected)
    violated = [result.id for result in results.violated()]
    others = {result.id for result in results.results} - set(violated)
    # A case in which the kit failed is a failed run already, and its violation may be there still.
    broken = {result.id for result in results.broken()}
    return Comparison(
        known=tuple(each for each in violated if each in known),
        new=tuple(each for each in violated if each not in known),
        gone=tuple(sorted((known & others) - broken)),
        unknown=tuple(sorted(known - set(violated) - others - deselected)),
    )
