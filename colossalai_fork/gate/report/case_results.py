"""What a run of the gate came to: a result for each case, summed up by class and contract point. Needs no torch."""

from __future__ import annotations

import collections
import dataclasses
from typing import Iterable

#: The contract, point by point, as tables name it.
POINTS = {
    1: "replace",
    2: "validate first",
    3: "all ranks or none",
    4: "old, new or empty",
    5: "bounded memory",
    6: "only what this rank needs",
    7: "linear time",
    8: "no code runs",
    9: "no accelerator needed",
    10: "loading never trains",
}

HELD, VIOLATED, NOT_APPLICABLE, BROKEN = "held", "violated", "not applicable", "broken"


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """How one case ended.

    Attributes:
        id (str): the test's id, the same in every run.
        checkpoint_io (str): the class under test.
        points (Tuple[int, ...]): the contract points that the case checks.
        processes (int): number of processes it ran on.
        status (str): "held", "violated", "not applicable", or "broken", which says nothing about the class.
        reason (str): why, in one line, unless it held.
        text (str): the whole reason, with where it was and what was printed.
        findings (Tuple[str, ...]): what was violated on which rank, without what differs from run to run.
        seconds (float): how long it took.
    """

    id: str
    checkpoint_io: str
    points: tuple[int, ...]
    processes: int
    status: str
    reason: str
    text: str
    findings: tuple[str, ...]
    seconds: float

    @property
    def method(self) -> str:
        """The name of the test method, without its arguments."""
        return self.id.rpartition("::")[2].partition("[")[0]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A class and a contract point.

    Attributes:
        results (Tuple[CaseResult, ...]): the cases of the class that check the point.
    """

    results: tuple[CaseResult, ...]

    def count(self, status: str) -> int:
        """Count results.

        Args:
            status (str): a status.

        Returns:
            int: how many cases ended like that.
        """
        return sum(result.status == status for result in self.results)

    @property
    def ran(self) -> int:
        """How many cases say something about the class."""
        return self.count(HELD) + self.count(VIOLATED)

    @property
    def status(self) -> str:
        """The worst that any case came to; "" if there is no case."""
        for status in (BROKEN, VIOLATED, HELD, NOT_APPLICABLE):
            if self.count(status):
                return status
        return ""


class GateResults:
    """The results of a run.

    Args:
        overlay (bool): whether the overlay was applied.
        results (Iterable[CaseResult]): the results.

    Attributes:
        results (List[CaseResult]): the results, in the order in which the cases ended.
    """

    def __init__(self, overlay: bool, results: Iterable[CaseResult] = ()) -> None:
        self.overlay = overlay
        self.results: list[CaseResult] = list(results)

    def counts(self) -> dict[str, int]:
        """Count the cases by status.

        Returns:
            Dict[str, int]: a number for each status that occurs.
        """
        return dict(collections.Counter(result.status for result in self.results))

    @property
    def classes(self) -> list[str]:
        """The classes under test. A case that did not get as far as to say its own has none."""
        return list(dict.fromkeys(result.checkpoint_io for result in self.results if result.checkpoint_io))

    @property
    def ran(self) -> int:
        """How many cases say something about a class."""
        return sum(result.status in (HELD, VIOLATED) for result in self.results)

    def violated(self) -> list[CaseResult]:
        """The cases that were violated.

        Returns:
            List[CaseResult]: in the order in which they ended.
        """
        return [result for result in self.results if result.status == VIOLATED]

    def broken(self) -> list[CaseResult]:
        """The cases in which the kit itself failed.

        Returns:
            List[CaseResult]: in the order in which they ended.
        """
        return [result for result in self.results if result.status == BROKEN]

    def slowest(self, count: int = 10) -> list[CaseResult]:
        """The cases that took longest.

        Args:
            count (int): how many at most.

        Returns:
            List[CaseResult]: the slowest first.
        """
        return sorted(self.results, key=lambda result: -result.seconds)[:count]

    def cell(self, checkpoint_io: str, point: int) -> Cell:
        """Choose the cases of a class that check a point.

        Args:
            checkpoint_io (str): the class.
            point (int): the point.

        Returns:
            Cell: the cases.
        """
        return Cell(
            tuple(each for each in self.results if each.checkpoint_io == checkpoint_io and point in each.points)
        )

    def by_case(self) -> dict[tuple[str, str], list[CaseResult]]:
        """Group the violations.

        Returns:
            Dict[Tuple[str, str], List[CaseResult]]: by class under test and test method.
        """
        groups: dict[tuple[str, str], list[CaseResult]] = {}
        for result in self.violated():
            groups.setdefault((result.checkpoint_io, result.method), []).append(result)
        return groups

    def not_applicable(self) -> dict[tuple[int, str], list[str]]:
        """Say why points do not apply to classes.

        Returns:
            Dict[Tuple[int, str], List[str]]: the classes, by point and reason, where no case of the point applied.
        """
        reasons: dict[tuple[int, str], list[str]] = {}
        for point in POINTS:
            for name in self.classes:
                cell = self.cell(name, point)
                if cell.status == NOT_APPLICABLE:
                    for reason in dict.fromkeys(each.reason for each in cell.results):
                        reasons.setdefault((point, reason), []).append(name)
        return reasons
