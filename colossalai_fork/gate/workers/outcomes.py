"""What came of a contract case, on one rank and on all of them."""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import Iterable


class ContractViolation(AssertionError):
    """The checkpoint IO class under test broke a promise of the contract.

    Attributes:
        in_step (bool): whether every rank raises this, at the same place.
    """

    in_step = False


class NotApplicable(Exception):
    """The case does not apply to this class or configuration; the text says why."""


class Status(enum.Enum):
    """How a case ended."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_APPLICABLE = "not applicable"
    # The kit itself failed: neither for nor against the class under test.
    BROKEN = "broken"
    # The rank did not finish in time, or its process ended.
    HUNG = "hung"
    DIED = "died"


class KitFailure(Exception):
    """The case cannot judge the class: a mistake of whoever described it, or a machine that has run out of something."""


@dataclasses.dataclass(frozen=True)
class RankOutcome:
    """How a case ended on one rank.

    Attributes:
        rank (int): the rank.
        status (Status): how it ended there.
        text (str): the reason; what was violated has a line for each violation.
        context (str): a traceback, or the stacks of a rank that hung.
        output (str): what the rank printed while the case ran.
        in_step (bool): whether every rank ended the case at the same place, so that its process can go on.
    """

    rank: int
    status: Status
    text: str = ""
    context: str = ""
    output: str = ""
    in_step: bool = False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a case ended on every rank.

    Attributes:
        ranks (List[RankOutcome]): one per rank, in order.
    """

    ranks: list[RankOutcome]

    @property
    def status(self) -> Status:
        """The status of the case: a crash or hang of any rank is a violation, whatever the others say."""
        found = {rank.status for rank in self.ranks}
        if Status.DIED in found:
            return Status.VIOLATED
        if Status.HUNG in found:
            # A rank on which the kit fails leaves its peers waiting; that says nothing of the class under test.
            return Status.BROKEN if Status.BROKEN in found else Status.VIOLATED
        for status in (Status.BROKEN, Status.VIOLATED, Status.NOT_APPLICABLE):
            if status in found:
                return status
        return Status.HELD

    @property
    def reusable(self) -> bool:
        """Whether the processes can run another case: no rank may wait for what another will never send."""
        return all(rank.in_step for rank in self.ranks) and len({rank.status for rank in self.ranks}) == 1

    @property
    def worst(self) -> list[RankOutcome]:
        """The ranks that made the status what it is, the cause before what follows from it."""
        order = (Status.DIED, Status.BROKEN, Status.VIOLATED, Status.HUNG, Status.NOT_APPLICABLE)
        told = [rank for status in order for rank in self.ranks if rank.status is status]
        if self.status is Status.BROKEN:
            told.sort(key=lambda rank: rank.status is not Status.BROKEN)
        return told

    @property
    def reason(self) -> str:
        """The reason in one line; "" if the case held."""
        told = self.worst
        return next(iter(told[0].text.strip().splitlines()), "") if told else ""

    @property
    def findings(self) -> tuple[str, ...]:
        """What was violated on which rank, without what differs from run to run; see :func:`kind_of`."""
        found = {}
        for rank in self.ranks:
            if rank.status in (Status.VIOLATED, Status.DIED, Status.HUNG):
                for line in rank.text.strip().splitlines():
                    found.setdefault(kind_of(line), set()).add(rank.rank)
        everywhere = set(range(len(self.ranks)))
        return tuple(
            sorted(
                line if line.startswith("rank ") or ranks == everywhere else f"rank {_listed(ranks)}: {line}"
                for line, ranks in found.items()
            )
        )

    def describe(self) -> str:
        """Say what happened on which rank: the reasons first, then where, then what was printed.

        Returns:
            str: one paragraph for each different outcome.
        """
        reasons, contexts = {}, {}
        for rank in self.worst:
            reasons.setdefault((rank.status, rank.text), []).append(rank.rank)
            for title, text in (("where", rank.context), ("printed", rank.output)):
                if text.strip():
                    contexts.setdefault((title, text.strip()), []).append(rank.rank)
        paragraphs = [f"{status.value} on {self._where(ranks)}: {text}" for (status, text), ranks in reasons.items()]
        paragraphs += [f"--- {title}, {self._where(ranks)} ---\n{text}" for (title, text), ranks in contexts.items()]
        return "\n\n".join(paragraphs)

    def _where(self, ranks: Iterable[int]) -> str:
        return f"rank {_listed(ranks)}" if len(self.ranks) > 1 else "the only rank"


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))


#: What differs from run to run, or from one version of torch to the next, and what stands for it in a finding.
_VOLATILE = (
    (re.compile(r"\b(\w*(?:Error|Exception|Exit|Interrupt|Warning)): .*"), r"\1"),
    (re.compile(r"0x[0-9a-fA-F]+"), "…"),
    (re.compile(r"(?<![\w.])/[^\s'\":,]+"), "…"),
    (re.compile(r"\[[-+\d.e, infa]*\]…?"), "[…]"),
    (re.compile(r"-?\b\d+\.\d*(?:e[-+]?\d+)?|\b\d{4,}\b"), "#"),
    (re.compile(r"\b\d+(?= (?:s|seconds|bytes|more)\b)"), "#"),
)


def kind_of(line: str) -> str:
    """What a line says but for addresses, times, values and the texts of exceptions.

    Args:
        line (str): a line of the reason for which a case was violated.

    Returns:
        str: the line with marks in their places.
    """
    for pattern, mark in _VOLATILE:
        line = pattern.sub(mark, line)
    return line.strip()
