"""Optimizers with a state dict of their own making: the file goes to their ``load_state_dict`` whole."""

import copy
from collections.abc import MutableMapping
from typing import Any, Dict, List, Optional

import torch
from torch.optim import Optimizer

from .containers import mapped
from .destination import Destination
from .errors import Problem, load_error
from .files.reading import plain
from .files.saved_state import SavedState, in_memory
from .validation import validate

__all__ = ["GroupsBefore", "OwnLayout", "has_own_layout", "overrides_loading"]


def overrides_loading(optimizer: Any) -> bool:
    """
    Tell whether an optimizer's class changes how state dicts are loaded.

    Args:
        optimizer (Any): An optimizer, or an object that is used as one.

    Returns:
        bool: Whether a class of the user's own decides what happens to a state dict, before native code does or instead of it.
    """
    method = optimizer.load_state_dict
    # ColossalAI's own optimizers hand on what they are given, and look at the loaded state only.
    handed_on = str(getattr(method, "__module__", "")).startswith("colossalai.nn.optimizer.")
    return not handed_on and getattr(method, "__func__", None) is not Optimizer.load_state_dict


def has_own_layout(destination: Destination, saved: SavedState, problems: Optional[List[Problem]] = None) -> bool:
    """
    Decide whether a checkpoint is for the optimizer's own ``load_state_dict`` alone to understand.

    Args:
        destination (Destination): The optimizer.
        saved (SavedState): The opened checkpoint.
        problems (Optional[List[Problem]]): What validation has found; None before it.

    Returns:
        bool: Whether it is.
    """
    optimizer = destination.optimizer
    # Shards are in native layout, whatever the optimizer would make of them.
    if not destination.may_have_own_layout or saved.index is not None:
        return False
    if not isinstance(optimizer, Optimizer):
        return True
    if not overrides_loading(optimizer):
        return False
    if problems is None:
        return saved.content is not None
    return not any(problem.damaged for problem in problems) and not _saves_in_native_layout(destination)


def _saves_in_native_layout(destination: Destination) -> bool:
    problems: List[Problem] = []
    saved = in_memory(destination.optimizer.state_dict())
    return validate(saved, destination, problems) is not None and not problems


class GroupsBefore:
    """
    An optimizer's parameter groups, to be put back.

    Args:
        optimizer (Any): The optimizer.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._list = optimizer.param_groups
        self._groups = [(group, dict(group)) for group in self._list]

    def put_back(self) -> None:
        """Make the groups what they were, in the same objects."""
        for group, content in self._groups:
            group.clear()
            group.update(content)
        self._list[:] = [group for group, _ in self._groups]
        if self._optimizer.param_groups is not self._list:
            self._optimizer.param_groups = self._list


class OwnLayout:
    """
    A load through the optimizer's own ``load_state_dict``.

    Args:
        destination (Destination): The optimizer.
        saved (SavedState): The opened checkpoint.
        digest (int): What the ranks compare.

    Raises:
        CheckpointLoadError: If the file cannot be read.
    """

    undone = (
        "The optimizer's state and parameter groups are as before, on every rank. What such an optimizer keeps elsewhere is "
        "its own affair: its load_state_dict may have changed that."
    )

    def __init__(self, destination: Destination, saved: SavedState, digest: int) -> None:
        if saved.content is None and saved.groups is None:
            raise load_error(saved.problems)
        self.optimizer = destination.optimizer
        self.digest = digest
        self._content = plain(saved.content if saved.content is not None else _state_dict_of(saved))
        saved.close()
        state = getattr(self.optimizer, "state", None)
        self._state = state if isinstance(state, MutableMapping) else None
        self._state_before = {} if self._state is None else {key: _copied(value) for key, value in self._state.items()}
        self._groups_before = GroupsBefore(self.optimizer) if hasattr(self.optimizer, "param_groups") else None

    def load(self) -> None:
        """Hand the file's content over."""
        self.optimizer.load_state_dict(self._content)

    def undo(self) -> None:
        """Put the state and the groups back."""
        if self._state is not None:
            self._state.clear()
            self._state.update(self._state_before)
            if self.optimizer.state is not self._state:
                self.optimizer.state = self._state
        if self._groups_before is not None:
            self._groups_before.put_back()

    def finish(self) -> None:
        """Do nothing: hooks are the optimizer's own affair, too."""

    def close(self) -> None:
        """Do nothing: the file is closed."""


def _state_dict_of(saved: SavedState) -> Dict[str, Any]:
    states = {param_id: state for shard in saved.shards for param_id, state in shard.states().items()}
    return {**saved.extra, "state": states, "param_groups": saved.groups}


def _copied(value: Any) -> Any:
    return mapped(value, lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else copy.copy(leaf))
