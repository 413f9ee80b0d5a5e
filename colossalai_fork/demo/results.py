"""What came of the demo, and what must hold of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from .schedule import FIXED, REFERENCE, UNMODIFIED

#: By how much of the reference's mean loss a run must differ in the mean to be called visibly different.
VISIBLE = 0.1


@dataclass(frozen=True)
class Claim:
    """Something that the demo shows.

    Args:
        text (str): what.
        holds (bool): whether it did.
        otherwise (str): what was found if it did not.
    """

    text: str
    holds: bool
    otherwise: str = ""


@dataclass(frozen=True)
class Reproduction:
    """What the script of the smallest case printed.

    Args:
        state (str): the optimizer's state after loading.
        parameter (str): the parameter after the next step.
    """

    state: str
    parameter: str

    @classmethod
    def read(cls, printed: str) -> Reproduction:
        """Read the script's output.

        Args:
            printed (str): the output.

        Returns:
            Reproduction: what it says.
        """
        values = dict(line.split(": ", 1) for line in printed.splitlines() if ": " in line)
        return cls(values.get("state after loading", "(none)"), values.get("parameter after the next step", "(none)"))


@dataclass(frozen=True)
class Run:
    """A run of the training.

    Args:
        before (List[float]): losses before the checkpoint.
        astray (List[float]): losses after it and before going back to it.
        after (List[float]): losses after that.
        with_state (int): how many parameters had optimizer state at the checkpoint, or after going back to it.
        accuracy (float): of the trained model on the test images.
        distance (float): largest difference of any of its parameters to the reference's.
        digests (List[str]): at the end, a hash of the bits of the parameters and of the optimizer's state on each rank.
    """

    before: list[float]
    astray: list[float]
    after: list[float]
    with_state: int
    accuracy: float
    distance: float
    digests: list[str]

    @property
    def mean_loss(self) -> float:
        """float: of the steps after the checkpoint."""
        return sum(self.after) / len(self.after)

    def equals(self, other: Run) -> bool:
        """Tell whether another run came to the same, bit for bit.

        Args:
            other (Run): the other.

        Returns:
            bool: whether all losses after the checkpoint, and at the end all parameters and optimizer state, are equal.
        """
        return self.after == other.after and self.digests == other.digests

    def difference(self, other: Run) -> float:
        """Measure how far the losses after the checkpoint are from another run's.

        Args:
            other (Run): the other.

        Returns:
            float: the mean difference, in units of the other's mean loss.
        """
        differences = [abs(ours - theirs) for ours, theirs in zip(self.after, other.after)]
        return sum(differences) / len(differences) / other.mean_loss


@dataclass(frozen=True)
class Training:
    """What came of the training.

    Args:
        reference (Run): never went astray.
        unmodified (Run): went back with ColossalAI's own loader.
        fixed (Run): went back with ours.
        parameters (int): number of parameters that the model has.
        unmodified_cannot_save (Optional[str]): why ColossalAI could not save the checkpoint; None if it could.
    """

    reference: Run
    unmodified: Run
    fixed: Run
    parameters: int
    unmodified_cannot_save: str | None = field(default=None)

    @classmethod
    def read(cls, path: str) -> Training:
        """Read what the training wrote.

        Args:
            path (str): the file.

        Returns:
            Training: what it says.
        """
        with open(path) as file:
            found = json.load(file)
        runs = {name: Run(**values) for name, values in found.pop("runs").items()}
        return cls(runs[REFERENCE], runs[UNMODIFIED], runs[FIXED], **found)


def claims_of_reproduction(unmodified: Reproduction, fixed: Reproduction) -> list[Claim]:
    """List what must hold of the smallest case.

    Args:
        unmodified (Reproduction): with ColossalAI as it is installed.
        fixed (Reproduction): with the overlay.

    Returns:
        List[Claim]: the claims.
    """
    stale = Reproduction("{0: {'momentum_buffer': tensor([1.])}}", "0.8100000023841858")
    right = Reproduction("{}", "0.8999999761581421")
    return [
        Claim(
            "unmodified: the old momentum survives, and the next step leads to 0.81",
            unmodified == stale,
            f"{unmodified.state}, {unmodified.parameter}. Is the installed ColossalAI fixed already?",
        ),
        Claim(
            "fixed: the state is empty, as in the checkpoint, and the next step leads to 0.9",
            fixed == right,
            f"{fixed.state}, {fixed.parameter}",
        ),
    ]


def claims_of_training(training: Training) -> list[Claim]:
    """List what must hold of the training.

    Args:
        training (Training): what came of it.

    Returns:
        List[Claim]: the claims.
    """
    reference, unmodified, fixed = training.reference, training.unmodified, training.fixed
    steps = len(reference.after)
    unequal = sum(ours != theirs for ours, theirs in zip(fixed.after, reference.after))
    difference = unmodified.difference(reference)
    return [
        Claim(
            "until they go back to the checkpoint, the runs are equal bit for bit",
            reference.before == unmodified.before == fixed.before and unmodified.astray == fixed.astray,
            "they are not, so that the comparison says nothing about loading",
        ),
        Claim(
            f"fixed: all {steps} losses after going back, and at the end all parameters and optimizer state on both "
            "processes, equal the reference's bit for bit",
            fixed.equals(reference),
            f"{unequal} losses differ; parameters differ by up to {fixed.distance:.3g}",
        ),
        Claim(
            f"unmodified: the losses after going back visibly differ from the reference's (by {difference:.0%})",
            difference > VISIBLE,
            f"{VISIBLE:.0%} would be visible. Is the installed ColossalAI fixed already?",
        ),
    ]
