"""What the measurements of several rounds come to."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Iterable


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and range of a figure.

    Attributes:
        median (float): the median.
        low (float): the least.
        high (float): the most.
        count (int): how many there are.
    """

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, figures: Iterable[float]) -> Spread:
        """Sum up figures.

        Args:
            figures (Iterable[float]): the figures, at least one.

        Returns:
            Spread: what they come to.
        """
        figures = list(figures)
        return cls(statistics.median(figures), min(figures), max(figures), len(figures))


@dataclasses.dataclass(frozen=True)
class Row:
    """What one contestant needed in one situation.

    Attributes:
        case (str): name of the case.
        cache (str): "warm" or "cold".
        destination (str): "fresh" or "trained".
        contestant (str): who.
        seconds (Spread): until the slowest rank was done.
        disk_share (Optional[float]): bytes from the disk, as a multiple of the rank's own state; the most of all ranks, in
            the median round. None for warm files.
        extra_anonymous (Optional[int]): bytes of anonymous memory beyond the state; the most of all ranks.
        peak_resident (Optional[int]): bytes of resident memory; the most of all ranks.
        files_opened (Optional[int]): files that a rank opened; the most of all ranks.
        openings (Optional[int]): how often.
        extra_device (Optional[int]): bytes of device memory beyond the state, where there is a device.
    """

    case: str
    cache: str
    destination: str
    contestant: str
    seconds: Spread
    disk_share: float | None = None
    extra_anonymous: int | None = None
    peak_resident: int | None = None
    files_opened: int | None = None
    openings: int | None = None
    extra_device: int | None = None

    @property
    def situation(self) -> tuple[str, str, str]:
        """Tuple[str, str, str]: what contestants are compared in."""
        return self.case, self.cache, self.destination


def summarise(records: Iterable[dict[str, Any]]) -> list[Row]:
    """Sum up the measurements of a run.

    Args:
        records (Iterable[dict]): measurements of a rank each: what :mod:`benchmarks.worker` measured, with ``case``,
            ``contestant``, ``round``, ``rank`` and ``observed``.

    Returns:
        List[Row]: a row for each contestant in each situation, in the order of the records.
    """
    grouped = {}
    for record in records:
        key = record["case"], record["cache"], record["destination"], record["contestant"]
        grouped.setdefault(key, []).append(record)
    return [_row(key, group) for key, group in grouped.items() if not all(each["observed"] for each in group)]


def _row(key: tuple[str, str, str, str], records: list[dict[str, Any]]) -> Row:
    timed = [record for record in records if not record["observed"]]
    observed = [record for record in records if record["observed"]]
    slowest = [max(each["seconds"] for each in ranks) for ranks in _by_round(timed)]
    disk = [max(each["disk_bytes"] / each["own_bytes"] for each in ranks) for ranks in _by_round(timed)]
    return Row(
        *key,
        seconds=Spread.of(slowest),
        disk_share=statistics.median(disk) if key[1] == "cold" else None,
        extra_anonymous=_most(observed, "extra_anonymous_bytes"),
        peak_resident=_most(observed, "peak_resident_bytes"),
        files_opened=_most(observed, "files_opened"),
        openings=_most(observed, "openings"),
        extra_device=_most(records, "extra_device_bytes"),
    )


def _by_round(records: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    rounds = {}
    for record in records:
        rounds.setdefault(record["round"], []).append(record)
    return rounds.values()


def _most(records: list[dict[str, Any]], name: str) -> int | None:
    return max((record[name] for record in records if name in record), default=None)


def ratio(rows: list[Row], row: Row, other: str) -> float | None:
    """How a row's median compares with that of another contestant in the same situation.

    Args:
        rows (List[Row]): all rows.
        row (Row): the row.
        other (str): the other contestant.

    Returns:
        Optional[float]: the quotient, or None if the other one did not take part.
    """
    for each in rows:
        if each.situation == row.situation and each.contestant == other:
            return row.seconds.median / each.seconds.median
    return None
