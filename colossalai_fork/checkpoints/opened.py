"""Open a checkpoint, and list what no optimizer could load."""

from typing import Any

import torch

from ..checkpoint_io.optimizer_restore.destination import Destination
from ..checkpoint_io.optimizer_restore.files.saved_state import SavedShard, is_sharded, open_sharded, open_unsharded
from ..checkpoint_io.optimizer_restore.files.sources import UnreadableFileError
from ..checkpoint_io.optimizer_restore.state_kinds import ELEMENTWISE_STATE, is_tensor
from ..checkpoint_io.optimizer_restore.validation import validate


class Checkpoint:
    """A checkpoint whose headers have been read.

    Args:
        path (str): a directory, an index file, or a file that holds the whole state.

    Attributes:
        saved (SavedState): the opened checkpoint.
        groups (list): its parameter groups; empty if they cannot be read.
        states (dict): states by parameter id, by file; nothing for files that cannot be read.
        problems (list[Problem]): why no optimizer could load it; empty if it is sound.
    """

    def __init__(self, path: str) -> None:
        self.path = str(path)
        sharded, opened_path = is_sharded(self.path)
        self.saved = open_sharded(opened_path) if sharded else open_unsharded(opened_path)
        self.groups = self.saved.groups or []
        self.states = {}
        for shard in self.saved.shards:
            try:
                self.states[shard.path] = shard.states()
            except UnreadableFileError:
                self.states[shard.path] = {}  # validation says why
        self.problems = list(self.saved.altered)
        validate(self.saved, Destination(_Fitting(self.groups, self.states)), self.problems)

    def readable_shards(self) -> list[SavedShard]:
        """Return the shards that can be opened."""
        broken = {problem.file for problem in self.problems if problem.damaged and problem.param_id is None}
        return [shard for shard in self.saved.shards if self.states[shard.path] or shard.path not in broken]

    def by_id(self) -> dict[Any, tuple[str, Any]]:
        """Return file and state by parameter id. Parameters without state have none."""
        return {
            param_id: (path, state)
            for path, of_file in self.states.items()
            for param_id, state in of_file.items()
            if state or not isinstance(state, dict)
        }


class _Fitting:
    """An optimizer as the checkpoint wants it, with parameters that take no memory.

    Args:
        groups (list): the saved groups.
        states (dict): states by parameter id, by file.
    """

    def __init__(self, groups: list[dict[str, Any]], states: dict[str, dict[Any, Any]]) -> None:
        shapes = {
            param_id: value.shape
            for of_file in states.values()
            for param_id, state in of_file.items()
            if isinstance(state, dict)
            for key, value in state.items()
            if key in ELEMENTWISE_STATE and is_tensor(value)
        }
        self.defaults, self.state, self.param_groups = {}, {}, []
        for group in groups:
            # No optimizer has a parameter in two groups, though one group may have it twice.
            made = {param_id: torch.empty(shapes.get(param_id, ()), device="meta") for param_id in group["params"]}
            self.param_groups.append({"params": [made[param_id] for param_id in group["params"]]})
