"""The loss curves of the demo, as both ways to draw them need them."""

import math
from dataclasses import dataclass

from .results import Training


@dataclass(frozen=True)
class Curve:
    """Losses over steps.

    Args:
        name (str): what the curve is of.
        steps (List[int]): number of steps made before each loss.
        losses (List[float]): the losses.
    """

    name: str
    steps: list[int]
    losses: list[float]


@dataclass(frozen=True)
class Curves:
    """All curves, in the order in which they are drawn.

    Args:
        astray (Curve): what the runs did after the checkpoint and before they went back to it.
        unmodified (Curve): went back with ColossalAI's own loader.
        reference (Curve): never went astray; from the first step on.
        fixed (Curve): went back with the fixed loader.
        checkpoint (int): the step that they went back to.
    """

    astray: Curve
    unmodified: Curve
    reference: Curve
    fixed: Curve
    checkpoint: int

    @property
    def last_step(self) -> int:
        """int: where the curves end."""
        return max(self.reference.steps)

    @property
    def top(self) -> float:
        """float: the highest loss to show. While a run is astray it may leave the picture."""
        shown = [*self.reference.losses, *self.unmodified.losses, *self.fixed.losses]
        return 1.3 * max([loss for loss in shown if math.isfinite(loss)], default=1.0)


def curves_of(training: Training) -> Curves:
    """Make the curves.

    Args:
        training (Training): what came of the training.

    Returns:
        Curves: the curves.
    """
    reference = training.reference
    checkpoint = len(reference.before)
    whole = [*reference.before, *reference.after]
    astray = training.unmodified.astray
    worst = f" (loss up to {max(astray):.3g})"
    equal = ": equal to the reference, bit for bit" if training.fixed.equals(reference) else ""

    def from_checkpoint(name: str, losses: list[float]) -> Curve:
        return Curve(name, list(range(checkpoint, checkpoint + len(losses))), losses)

    return Curves(
        astray=from_checkpoint(f"astray: learning rate a hundred times too high{worst}", astray),
        unmodified=from_checkpoint("went back with ColossalAI's own loader", training.unmodified.after),
        reference=Curve("reference: never went astray", list(range(len(whole))), whole),
        fixed=from_checkpoint(f"went back with the fixed loader{equal}", training.fixed.after),
        checkpoint=checkpoint,
    )
