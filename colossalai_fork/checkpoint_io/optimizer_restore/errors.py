"""What can be wrong with an optimizer checkpoint, and how it is said.

Loading collects every problem it can find before it raises, so an exception here carries a list. A problem keeps its
parts (file, parameter id, state key, expected, found) so that programs need not parse the text. They are numbers and short
texts, whatever the checkpoint holds, so that every problem can be sent to other ranks and printed on a terminal.
"""

from typing import Any, Iterable, List, Optional

__all__ = [
    "CheckpointDamagedError",
    "CheckpointLoadError",
    "CheckpointMismatchError",
    "CheckpointMissingError",
    "Problem",
    "load_error",
    "shown",
]

# A message is for a person: beyond this many lines the problems repeat themselves. `problems` keeps them all.
MAX_PROBLEMS_PRINTED = 40
MAX_TEXT = 200
MAX_MESSAGE = 2000
# Python refuses to print integers of any length.
MAX_BITS = 512

UNCHANGED = "The optimizer is unchanged."
REBUILD = "Build the model and the optimizer as they were when the checkpoint was saved, or load another checkpoint."


def shown(value: Any, limit: int = MAX_TEXT, lines: bool = False) -> Any:
    """
    Make something that was found in a checkpoint fit for a message.

    Args:
        value (Any): A parameter id, a state key, a shape, a type name, anything.
        limit (int, optional): The longest text. Defaults to 200 characters.
        lines (bool, optional): Whether the text may have several lines.

    Returns:
        Any: The value itself if it is a number or a short sequence of numbers; otherwise a short text that can be printed.
    """
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int) and value.bit_length() <= MAX_BITS:
        return int(value)
    if isinstance(value, (tuple, list)) and len(value) <= 16:
        numbers = tuple(value)
        if all(type(each) is int and each.bit_length() <= MAX_BITS for each in numbers):
            return numbers
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = "a {}".format(type(value).__name__)
    text = text if len(text) <= limit else text[:limit] + "..."
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or (lines and each == "\n") else ascii(each)[1:-1] for each in text)


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
        missing (bool, optional): Whether a file, or an index, is not there.
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
        missing: bool = False,
    ) -> None:
        self.text = shown(text, MAX_MESSAGE, lines=True)
        self.damaged = damaged
        self.file = None if file is None else shown(str(file), MAX_MESSAGE)
        self.param_id = shown(param_id)
        self.key = None if key is None else str(shown(key))
        self.expected = shown(expected)
        self.found = shown(found)
        self.remedy = remedy
        self.missing = missing
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

    def __reduce__(self) -> Any:
        return type(self), (self.problems, self.outcome)


class CheckpointMismatchError(CheckpointLoadError, ValueError):
    """The checkpoint is sound but does not fit this optimizer."""


class CheckpointDamagedError(CheckpointLoadError, RuntimeError):
    """The checkpoint is incomplete, contradicts itself or cannot be read, or reading it failed half-way."""


class CheckpointMissingError(CheckpointDamagedError, FileNotFoundError, ValueError):
    """
    A file of the checkpoint, or its index, does not exist.

    ColossalAI has always raised ``FileNotFoundError`` for the one and ``ValueError`` for the other.
    """


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
    kind = CheckpointDamagedError if damaged else CheckpointMismatchError
    if any(problem.missing for problem in problems):
        kind = CheckpointMissingError
    if outcome is None:
        # What is damaged says itself what can be done about it.
        outcome = UNCHANGED if damaged else "{} {}".format(UNCHANGED, REBUILD)
    return kind(problems, outcome)
