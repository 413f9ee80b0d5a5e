"""What differs between two checkpoints, entry by entry: of the same state in two layouts, or of two points in time."""

from typing import Any, Callable, Iterator

import torch

from ..checkpoint_io.optimizer_restore.containers import leaves
from ..checkpoint_io.optimizer_restore.errors import Problem
from ..checkpoint_io.optimizer_restore.files.reading import read
from ..checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor
from ..checkpoint_io.optimizer_restore.state_kinds import is_tensor
from .opened import Checkpoint
from .summary import kind_of

#: How many elements of a tensor are compared at once.
PIECE = 1 << 20
_ABSENT = object()
_Tensor = torch.Tensor | SavedTensor


def differences(
    checkpoint: Checkpoint, other: Checkpoint, advance: Callable[[int], None] = lambda count: None
) -> list[Problem]:
    """Compare groups, entries and every bit of their tensors. Holds no more than pieces of two tensors in memory.

    Args:
        checkpoint (Checkpoint): what should be as it was.
        other (Checkpoint): what it was.
        advance (Callable[[int], None]): told how many bytes have been compared since the last call.

    Returns:
        list[Problem]: each difference, in the words of ``checkpoint``.
    """
    problems = []
    _compare_groups(checkpoint, other, problems)
    mine, theirs = checkpoint.by_id(), other.by_id()
    for param_id in sorted({*mine, *theirs}, key=lambda each: (isinstance(each, str), each)):
        path, state = mine.get(param_id, (checkpoint.saved.source, {}))
        _, expected = theirs.get(param_id, (None, {}))
        states = [each if isinstance(each, dict) else {None: each} for each in (state, expected)]
        for key in dict.fromkeys([*states[0], *states[1]]):
            found, was = (each.get(key, _ABSENT) for each in states)
            difference = _difference(found, was, advance)
            if difference:
                problems.append(Problem("it differs: " + difference[0], False, path, param_id, key, *difference[1:]))
    return problems


def _compare_groups(checkpoint: Checkpoint, other: Checkpoint, problems: list[Problem]) -> None:
    path = checkpoint.saved.groups_source
    if len(checkpoint.groups) != len(other.groups):
        text = "it differs: the number of parameter groups"
        problems.append(Problem(text, False, path, None, None, len(other.groups), len(checkpoint.groups)))
    for position, (found, was) in enumerate(zip(checkpoint.groups, other.groups)):
        for key in dict.fromkeys([*found, *was]):
            values = found.get(key, _ABSENT), was.get(key, _ABSENT)
            if not _is_same(*values):
                text = f"it differs: {key!r} of parameter group {position}"
                problems.append(Problem(text, False, path, None, None, _said(values[1]), _said(values[0])))


def _difference(found: Any, was: Any, advance: Callable[[int], None]) -> tuple[str, str | None, str | None] | None:
    """Return what differs, what was expected and what was found; None if nothing does."""
    if is_tensor(found) and is_tensor(was):
        if (found.dtype, tuple(found.shape)) != (was.dtype, tuple(was.shape)):
            return "the kind of tensor", _said(was), _said(found)
        count = sum(_unequal(mine, theirs, advance) for mine, theirs in zip(_pieces(found), _pieces(was)))
        return (f"{count:,} of {found.numel():,} numbers", None, None) if count else None
    return None if _is_same(found, was, advance) else ("the value", _said(was), _said(found))


def _is_same(found: Any, was: Any, advance: Callable[[int], None] = lambda count: None) -> bool:
    if is_tensor(found) or is_tensor(was):
        return is_tensor(found) and is_tensor(was) and not _difference(found, was, advance)
    if type(found) is not type(was):
        return False
    if isinstance(found, dict):
        return list(found) == list(was) and all(_is_same(found[key], was[key], advance) for key in found)
    if isinstance(found, (list, tuple)):
        return len(found) == len(was) and all(map(_is_same, found, was))
    # NaN is what it was, too.
    return found == was or (found != found and was != was)


def _pieces(tensor: _Tensor) -> Iterator[_Tensor]:
    if tensor.numel() <= PIECE or not tensor.is_contiguous():
        yield tensor
        return
    flat = tensor.flat() if isinstance(tensor, SavedTensor) else tensor.reshape(-1)
    for start in range(0, flat.numel(), PIECE):
        yield flat.narrow(0, start, min(PIECE, flat.numel() - start))


def _unequal(found: _Tensor, was: _Tensor, advance: Callable[[int], None]) -> int:
    bits = [_bits(each) for each in (found, was)]
    advance(bits[0].numel() + bits[1].numel())
    if torch.equal(*bits):
        return 0
    return int((bits[0] != bits[1]).view(-1, found.dtype.itemsize).any(dim=1).sum())


def _bits(tensor: _Tensor) -> torch.Tensor:
    if isinstance(tensor, SavedTensor):
        (tensor,) = read([tensor])
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _said(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    if is_tensor(value):
        return f"{kind_of(value)} {tuple(value.shape)}"
    return "a collection of tensors" if any(map(is_tensor, leaves(value))) else repr(value)
