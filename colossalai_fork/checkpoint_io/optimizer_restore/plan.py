"""What a validated load will do: which saved state goes to which parameter, and which part of it is read."""

from itertools import groupby
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch

from .containers import leaves, mapped, owned_leaf
from .errors import Problem, load_error
from .files.reading import read, read_ahead
from .files.saved_state import REWRITE, SavedShard
from .files.saved_tensor import SavedTensor
from .files.sources import UnreadableFileError
from .placement import Placement, Replicated
from .state_kinds import is_scalar, is_tensor, placement_of_state

__all__ = ["Entry", "Plan", "everything_in", "opened"]

# How much is read before native code asks for it, if a shard is larger.
MAX_BYTES_AHEAD = 64 << 20
WHOLE = Replicated(())


class Entry(NamedTuple):
    """
    The state of one parameter.

    Args:
        param_id (Any): Its saved id.
        param (Optional[torch.Tensor]): The parameter; None for state of the optimizer as a whole.
        placement (Placement): The part of the state that this rank keeps.
        state (Dict[str, Any]): The state, as it is saved or as this rank keeps it.
    """

    param_id: Any
    param: Optional[torch.Tensor]
    placement: Placement
    state: Dict[str, Any]


class Plan:
    """
    A validated load: what goes where.

    Args:
        groups (List[Dict[str, Any]]): The saved groups for the optimizer's groups, ``params`` holding saved ids.
        targets (Dict[int, Tuple[torch.Tensor, Placement]]): The parameter of each saved id that this rank keeps, and
            the part of it.
        shards (List[SavedShard]): The shards to read.
        extra (Dict[str, Any]): What the state dict holds beside state and groups.
    """

    def __init__(
        self,
        groups: List[Dict[str, Any]],
        targets: Dict[int, Tuple[torch.Tensor, Placement]],
        shards: List[SavedShard],
        extra: Dict[str, Any],
    ) -> None:
        self.groups = groups
        self.targets = targets
        self.shards = shards
        self.extra = extra

    def saved_entries(self, shards: Optional[Iterable[SavedShard]] = None) -> Iterator[Entry]:
        """
        Walk through what is saved, without reading a tensor.

        Args:
            shards (Optional[Iterable[SavedShard]]): Where to look. Defaults to all of them.

        Yields:
            Entry: The saved state of each parameter of this rank, and of the optimizer as a whole.

        Raises:
            CheckpointDamagedError: If a shard can no longer be opened.
        """
        for shard in self.shards if shards is None else shards:
            for param_id, state in opened(shard).items():
                if param_id in self.targets:
                    param, placement = self.targets[param_id]
                    yield Entry(param_id, param, placement, state)
                elif not isinstance(param_id, int):
                    yield Entry(param_id, None, WHOLE, state)

    def entries(self, threads: int = 2) -> Iterator[Entry]:
        """
        Read this rank's part of the checkpoint, a bounded number of bytes ahead.

        Args:
            threads (int, optional): The number of threads that read. Defaults to 2.

        Yields:
            Entry: State as this rank keeps it, in memory that nothing else holds.

        Raises:
            CheckpointDamagedError: If a file cannot be read, or was written to since it was validated.
        """
        sizes = [source.size for shard in self.shards for source in shard.sources]
        ahead = min(MAX_BYTES_AHEAD, max(sizes, default=0))
        try:
            for (keep, owned), shards in groupby(self.shards, lambda shard: (shard.keep, shard.owned)):
                entries = self.saved_entries(shards)
                if owned:
                    yield from entries
                elif not keep:
                    # Each shard takes memory as soon as it is opened, so none may be opened ahead of time.
                    for entry in entries:
                        yield entry._replace(state=_in_memory(entry, read(_wanted(entry))))
                else:
                    requests = ((entry, _wanted(entry)) for entry in entries)
                    for entry, tensors in read_ahead(requests, threads, ahead):
                        yield entry._replace(state=_in_memory(entry, tensors))
            for shard in self.shards:
                for source in shard.sources:
                    source.check_unchanged()
        except UnreadableFileError as error:
            raise load_error([Problem(str(error), True, error.file, remedy=REWRITE)]) from error


def opened(shard: SavedShard) -> Dict[Any, Any]:
    """
    Give the states of a shard.

    Args:
        shard (SavedShard): A shard that validation has opened before.

    Returns:
        Dict[Any, Any]: Its states by parameter id.

    Raises:
        CheckpointDamagedError: If it can no longer be opened.
    """
    try:
        return shard.states()
    except UnreadableFileError as error:
        text = "the file was sound a moment ago: {}".format(error)
        raise load_error([Problem(text, True, shard.path, remedy=REWRITE)]) from error


def everything_in(shards: List[SavedShard]) -> Dict[int, Tuple[Any, Placement]]:
    """
    Make targets for all that some shards hold.

    Args:
        shards (List[SavedShard]): Shards that can be opened.

    Returns:
        Dict[int, Tuple[Any, Placement]]: Targets that stand for no parameter yet, for all that the shards hold.
    """
    return {param_id: (None, WHOLE) for shard in shards for param_id in opened(shard) if isinstance(param_id, int)}


def _part(placement: Placement, key: str, value: Any) -> Placement:
    if not placement.divides or is_scalar(key, value, placement.global_shape):
        return WHOLE
    return placement_of_state(placement, key) or WHOLE


def _wanted(entry: Entry) -> List[SavedTensor]:
    # In the order in which _in_memory takes them.
    if not isinstance(entry.state, dict):
        return [leaf for leaf in leaves(entry.state) if type(leaf) is SavedTensor]
    wanted: List[SavedTensor] = []
    for key, value in entry.state.items():
        if type(value) is SavedTensor:
            wanted.append(_part(entry.placement, key, value).held(value) if entry.placement.divides else value)
        elif not is_tensor(value):
            wanted.extend(leaf for leaf in leaves(value) if type(leaf) is SavedTensor)
    return wanted


def _in_memory(entry: Entry, tensors: List[torch.Tensor]) -> Any:
    read = iter(tensors)

    def owned(leaf: Any) -> Any:
        if type(leaf) is SavedTensor:
            return next(read)
        return owned_leaf(leaf)

    def own_part(key: str, value: Any) -> Any:
        if not is_tensor(value):
            return mapped(value, owned)
        part = _part(entry.placement, key, value)
        held = next(read) if type(value) is SavedTensor else part.held(value.detach()).clone()
        return part.place(held, value.shape)

    if not isinstance(entry.state, dict):
        return mapped(entry.state, owned)
    if not entry.placement.divides:
        return {
            key: next(read) if type(value) is SavedTensor else mapped(value, owned)
            for key, value in entry.state.items()
        }
    return {key: own_part(key, value) for key, value in entry.state.items()}
