"""What can be wrong with an optimizer checkpoint, and how it is said.

Loading collects every problem it can find before it raises, so an exception here carries a list. A problem keeps its
parts (file, parameter id, state key, expected, found) so that programs need not parse the text.
"""

from typing import Any, Iterable, List, Optional

__all__ = ["Problem", "CheckpointLoadError", "CheckpointMismatchError", "CheckpointDamagedError", "load_error"]

# A message is for a person: beyond this many lines the problems repeat themselves. `problems` keeps them all.
MAX_PROBLEMS_PRINTED = 40

UNCHANGED = "The optimizer is unchanged."
REBUILD = "Build the model and the optimizer as they were when the checkpoint was saved, or load another checkpoint."


class Problem:
    """
    One thing that is wrong with a checkpoint.

    Args:
        text (str): What is wrong, as a clause without the file name.
        damaged (bool, optional): True if no optimizer could load this checkpoint, False if it does not fit this one.
        file (str, optional): The file that the problem was found in.
        param_id (Any, optional): The saved id of the parameter concerned.
        key (str, optional): The name of the state concerned, e.g. ``exp_avg``.
        expected (Any, optional): What would have been right.
        found (Any, optional): What was there instead.
        remedy (str, optional): What the reader can do about it.
    """

    def __init__(
        self,
        text: str,
        damaged: bool = False,
        file: Optional[str] = None,
        param_id: Any = None,
        key: Optional[str] = None,
        expected: Any = None,
        found: Any = None,
        remedy: Optional[str] = None,
    ) -> None:
        self.text = text
        self.damaged = damaged
        self.file = None if file is None else str(file)
        self.param_id = param_id
        self.key = key
        self.expected = expected
        self.found = found
        self.remedy = remedy
        self.rank: Optional[int] = None

    def __str__(self) -> str:
        parts = []
        if self.param_id is not None:
            parts.append("parameter id {!r}".format(self.param_id))
        if self.key is not None:
            parts.append("state {!r}".format(self.key))
        where = ", ".join(parts)
        line = "{}: {}".format(where, self.text) if where else self.text
        if self.expected is not None or self.found is not None:
            line += " (expected {}, found {})".format(self.expected, self.found)
        if self.file is not None:
            line = "{}: {}".format(self.file, line)
        if self.rank is not None:
            line = "rank {}: {}".format(self.rank, line)
        if self.remedy is not None:
            line += ". {}".format(self.remedy)
        return line

    def __repr__(self) -> str:
        return "Problem({!r})".format(str(self))


class CheckpointLoadError(Exception):
    """
    An optimizer checkpoint was not loaded.

    Args:
        problems (Iterable[Problem]): Everything that was found, of every rank.
        outcome (str, optional): What the optimizer holds now.
    """

    def __init__(self, problems: Iterable[Problem], outcome: str = UNCHANGED) -> None:
        self.problems: List[Problem] = list(problems)
        self.outcome = outcome
        super().__init__(self._message())

    def _message(self) -> str:
        count = len(self.problems)
        lines = ["the optimizer checkpoint was not loaded, {} problem{}:".format(count, "" if count == 1 else "s")]
        lines.extend("  - {}".format(problem) for problem in self.problems[:MAX_PROBLEMS_PRINTED])
        if count > MAX_PROBLEMS_PRINTED:
            lines.append("  - and {} more (see the exception's `problems`)".format(count - MAX_PROBLEMS_PRINTED))
        lines.append(self.outcome)
        return "\n".join(lines)

    def __reduce__(self):
        return type(self), (self.problems, self.outcome)


class CheckpointMismatchError(CheckpointLoadError, ValueError):
    """The checkpoint is sound but does not fit this optimizer."""


class CheckpointDamagedError(CheckpointLoadError, RuntimeError):
    """The checkpoint is incomplete, contradicts itself or cannot be read, or reading it failed half-way."""


def load_error(problems: List[Problem], outcome: Optional[str] = None) -> CheckpointLoadError:
    """
    Choose the exception for a list of problems.

    Damage outweighs a mismatch: what was read from a damaged checkpoint says little about whether it fits. Ranks that
    hold the same list therefore raise the same type.

    Args:
        problems (List[Problem]): At least one problem.
        outcome (str, optional): What the optimizer holds now. Defaults to that it is unchanged, and what to do.

    Returns:
        CheckpointLoadError: The exception, to be raised by the caller.
    """
    damaged = any(problem.damaged for problem in problems)
    if outcome is None:
        # What is damaged says itself what can be done about it.
        outcome = UNCHANGED if damaged else "{} {}".format(UNCHANGED, REBUILD)
    return (CheckpointDamagedError if damaged else CheckpointMismatchError)(problems, outcome)
