"""What came of a contract case, on one rank and on all of them."""

import dataclasses
import enum
from typing import List


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


@dataclasses.dataclass(frozen=True)
class RankOutcome:
    """How a case ended on one rank.

    Attributes:
        rank (int): the rank.
        status (Status): how it ended there.
        text (str): the reason, a traceback or the stacks of a rank that hung.
        output (str): what the rank printed while the case ran.
        in_step (bool): whether every rank ended the case at the same place, so that its process can go on.
    """

    rank: int
    status: Status
    text: str = ""
    output: str = ""
    in_step: bool = False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a case ended on every rank.

    Attributes:
        ranks (List[RankOutcome]): one per rank, in order.
    """

    ranks: List[RankOutcome]

    @property
    def status(self):
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
    def reusable(self):
        """Whether the processes can run another case: no rank may wait for what another will never send."""
        return all(rank.in_step for rank in self.ranks) and len({rank.status for rank in self.ranks}) == 1

    def describe(self):
        """Say what happened on which rank.

        Returns:
            str: one paragraph for each different outcome.
        """
        by_text = {}
        for rank in self.ranks:
            if rank.status is not Status.HELD:
                by_text.setdefault((rank.status, rank.text, rank.output), []).append(rank.rank)
        paragraphs = []
        for (status, text, output), ranks in by_text.items():
            where = "rank " + ", ".join(map(str, ranks)) if len(self.ranks) > 1 else "the only rank"
            paragraph = f"{status.value} on {where}: {text}"
            if output.strip():
                paragraph += f"\n--- printed there ---\n{output.strip()}"
            paragraphs.append(paragraph)
        return "\n\n".join(paragraphs)
