"""By which steps the digits are trained."""

from dataclasses import dataclass

#: Processes that train together.
WORLD_SIZE = 2
#: Images that each process sees in a step.
BATCH_SIZE = 128
#: The runs, in the order they are made.
REFERENCE, UNMODIFIED, FIXED = RUNS = ("reference", "unmodified", "fixed")


@dataclass(frozen=True)
class Phase:
    """Steps made under the same conditions.

    Args:
        steps (int): how many.
        learning_rate (float): of Adam.
        whole_model (bool): whether all layers are trained, or only the last one, as long as the others are frozen.
    """

    steps: int
    learning_rate: float
    whole_model: bool


@dataclass(frozen=True)
class Schedule:
    """What the runs go through. The checkpoint is taken after ``last_layer``.

    Args:
        steps (int): steps after the checkpoint.
    """

    steps: int = 100

    #: First the last layer alone: at the checkpoint, the layers below have no optimizer state.
    last_layer = Phase(steps=30, learning_rate=0.01, whole_model=False)
    #: What is done by mistake after that: the learning rate is a hundred times too high, so that the loss shoots up.
    astray = Phase(steps=10, learning_rate=0.2, whole_model=True)

    @property
    def whole_model(self) -> Phase:
        """Phase: what is done after the checkpoint, at once (the reference) or after going back to it."""
        return Phase(steps=self.steps, learning_rate=0.002, whole_model=True)

    @property
    def total_steps(self) -> int:
        """int: the steps of all runs together."""
        with_detour = len(RUNS) - 1
        return len(RUNS) * (self.last_layer.steps + self.steps) + with_detour * self.astray.steps
