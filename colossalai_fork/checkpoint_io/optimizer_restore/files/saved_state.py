"""A saved optimizer state, opened but not read.

Knows how checkpoints are laid out (index, group file, shards, one file, a state dict in memory) and nothing of optimizers
or ranks. Whatever is wrong with the files is collected in :attr:`SavedState.problems` instead of raised at once.
"""

import os
import re
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, Optional, Set, Union

from ..errors import Problem
from .index_file import REWRITE, is_sharded, normalised_id, path_inside, read_index
from .plain_pickle import shown
from .reading import plain
from .safetensors_file import open_safetensors_file
from .sources import UnreadableFileError
from .torch_file import open_torch_file

__all__ = [
    "REWRITE",
    "SavedShard",
    "SavedState",
    "in_memory",
    "is_sharded",
    "normalised_id",
    "open_groups",
    "open_sharded",
    "open_unsharded",
]

# How the files of a pipeline stage are named, behind a prefix of the user's choice.
_STAGE = re.compile(r".*-stage-(\d+)-")


class SavedShard:
    """
    The states that one file holds.

    Args:
        path (str): What to call it in messages.
        read (Callable[[], Any]): Gives the states by parameter id.
        lists_every_id (bool, optional): False if parameters whose state is empty leave no trace in this format.
        keep (bool, optional): Whether to read once and keep the result, which takes little memory.
        owned (bool, optional): Whether ``read`` makes tensors that nothing else holds, each with memory of its own.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[], Any],
        lists_every_id: bool = True,
        keep: bool = False,
        owned: bool = False,
    ) -> None:
        self.path = path
        self.lists_every_id = lists_every_id
        self.owned = owned
        # Files that the states' tensors lie in, once they are known.
        self.sources: List[Any] = []
        # Ids of which the file may hold a second copy, because the index gives them to the file of another stage.
        self.spare_ids: Collection[Any] = ()
        self._read = read
        self.keep = keep
        self._kept: Optional[Dict[Any, Any]] = None

    @classmethod
    def of_file(cls, path: str) -> "SavedShard":
        """
        Make a shard of a file.

        Args:
            path (str): A file of states. It is opened when they are first asked for.

        Returns:
            SavedShard: The states.
        """

        def read() -> Any:
            opened = open_safetensors_file(path) if is_safetensors else open_torch_file(path)
            shard.sources = opened.sources
            # What torch's own loader has made takes as much memory as the file.
            shard.keep = not opened.fell_back
            return _nested(opened.content) if is_safetensors else opened.content

        is_safetensors = path.endswith(".safetensors")
        shard = cls(path, read, lists_every_id=not is_safetensors, keep=True)
        return shard

    def states(self) -> Dict[Any, Any]:
        """
        Give the states, opening the file if it is not open yet.

        Returns:
            Dict[Any, Any]: State by parameter id, without copies of what another file holds.

        Raises:
            UnreadableFileError: If the file cannot be opened, or has been written to since it was opened.
        """
        states = self._kept if self._kept is not None else self._checked(self._read())
        if self.keep:
            self._kept = states
        for source in self.sources:
            source.check_unchanged()
            source.rest()
        return states

    def _checked(self, content: Any) -> Dict[Any, Any]:
        if not isinstance(content, Mapping):
            text = "it holds a {} where states by parameter id belong"
            raise UnreadableFileError(text.format(shown(type(content).__name__)))
        states = {normalised_id(param_id): state for param_id, state in content.items()}
        if len(states) != len(content):
            raise UnreadableFileError("it holds a parameter id twice")
        if self.spare_ids:
            states = {param_id: state for param_id, state in states.items() if param_id not in self.spare_ids}
        return states


class SavedState:
    """
    Everything that a checkpoint says about an optimizer.

    Args:
        source (str): What to call the checkpoint in messages.
        groups (Optional[List[Dict[str, Any]]]): The parameter groups, ``params`` holding ids; None if unreadable.
        groups_source (str): What to call the place of the groups in messages.
        shards (List[SavedShard]): The files that hold state.
        index (Optional[Dict[Any, str]]): The shard path that the index gives for each parameter id; None if there is
            no index.
        problems (List[Problem]): What is wrong already.
        extra (Dict[str, Any], optional): What a state dict holds beside ``state`` and ``param_groups``.
        content (Any, optional): The whole of a file that is not in native layout, for the optimizer's own
            ``load_state_dict``. There are no groups then.

    Attributes:
        sources: Files that ``content`` lies in, if it does.
    """

    def __init__(
        self,
        source: str,
        groups: Optional[List[Dict[str, Any]]],
        groups_source: str,
        shards: List[SavedShard],
        index: Optional[Dict[Any, str]] = None,
        problems: Optional[List[Problem]] = None,
        extra: Optional[Dict[str, Any]] = None,
        content: Any = None,
    ) -> None:
        self.source = source
        self.groups = groups
        self.groups_source = groups_source
        self.shards = shards
        self.index = index
        self.problems = problems or []
        self.extra = extra or {}
        self.content = content
        self.sources: List[Any] = []

    def close(self) -> None:
        """Give back the files that are open. Reading opens them again."""
        for source in [*self.sources, *(source for shard in self.shards for source in shard.sources)]:
            source.close()

    def shards_with(self, ids: Collection[Any]) -> Iterator[SavedShard]:
        """
        Find the shards that hold some parameters.

        Args:
            ids (Collection[Any]): Parameter ids.

        Yields:
            SavedShard: The shards that the index gives for these ids; every shard if there is no index.
        """
        if self.index is None:
            yield from self.shards
            return
        # Keys that are no parameter's id belong to the optimizer as a whole.
        wanted = {path for param_id, path in self.index.items() if param_id in ids or not isinstance(param_id, int)}
        for shard in self.shards:
            if shard.path in wanted:
                yield shard


def open_sharded(index_path: Union[str, Path]) -> SavedState:
    """
    Open a sharded checkpoint: read the index and the group file, and note where the states are.

    Args:
        index_path (Union[str, Path]): The index file.

    Returns:
        SavedState: The checkpoint, with everything that is wrong with its index and groups in ``problems``.
    """
    path = os.fspath(index_path)
    problems: List[Problem] = []
    weight_map, metadata = read_index(path, problems)
    directory = os.path.dirname(os.path.abspath(path))

    groups = None
    groups_path = path
    if not problems:
        name = metadata.get("param_groups")
        if not isinstance(name, str):
            text = "the index names no parameter group file, so this is not an optimizer checkpoint"
            problems.append(Problem(text, damaged=True, file=path))
        else:
            groups_path = path_inside(directory, name, path, problems) or path
            groups = _read_groups_file(groups_path, problems) if not problems else None

    index: Dict[Any, str] = {}
    shards: Dict[str, SavedShard] = {}
    refused: Set[str] = set()
    for param_id, name in weight_map.items():
        if name not in shards and name not in refused:
            inside = path_inside(directory, name, path, problems, param_id)
            if inside:
                shards[name] = SavedShard.of_file(inside)
            else:
                refused.add(name)
        if name in shards:
            index[normalised_id(param_id)] = shards[name].path
    if len(index) + sum(name in refused for name in weight_map.values()) != len(weight_map):
        problems.append(Problem("the index lists a parameter id twice", True, path, remedy=REWRITE))
    _note_spare_ids(index, list(shards.values()))
    return SavedState(path, groups, groups_path, list(shards.values()), index, problems)


def open_unsharded(path: Union[str, Path]) -> SavedState:
    """
    Open a checkpoint that is one file, as ``torch.save(optimizer.state_dict(), path)`` or asynchronous saving makes it.

    Args:
        path (Union[str, Path]): The file.

    Returns:
        SavedState: The checkpoint, with everything that is wrong with the file in ``problems``.
    """
    path = os.fspath(path)
    try:
        if path.endswith(".safetensors"):
            opened = open_safetensors_file(path)
            entries = opened.content
            groups = {"param_groups": entries.pop("param_groups")} if "param_groups" in entries else {}
            content: Any = {"state": _nested(entries), **groups}
        else:
            opened = open_torch_file(path)
            content = opened.content
        saved = in_memory(content, path)
        saved.extra = plain(saved.extra)
        saved.groups = plain(saved.groups)
    except UnreadableFileError as error:
        return SavedState(path, None, path, [], None, [_unreadable(error, path)])
    saved.sources = opened.sources
    for shard in saved.shards:
        shard.sources = opened.sources
    return saved


def open_groups(path: Union[str, Path]) -> SavedState:
    """
    Open a group file alone.

    Args:
        path (Union[str, Path]): The file.

    Returns:
        SavedState: A checkpoint with these groups and no state.
    """
    path = os.fspath(path)
    problems: List[Problem] = []
    groups = _read_groups_file(path, problems)
    return SavedState(path, groups, path, [], None, problems)


def in_memory(state_dict: Any, source: str = "the state dict") -> SavedState:
    """
    Treat a state dict as a checkpoint.

    Args:
        state_dict (Any): What ``Optimizer.state_dict`` returns: ``state`` and ``param_groups``.
        source (str, optional): What to call it in messages.

    Returns:
        SavedState: The checkpoint, with everything that is wrong with its layout in ``problems``.
    """
    problems: List[Problem] = []
    if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
        text = "it is not an optimizer's state dict, which has 'state' and 'param_groups'"
        problems.append(Problem(text, damaged=True, file=source))
        return SavedState(source, None, source, [], None, problems, content=state_dict)
    groups = checked_groups(state_dict["param_groups"], source, problems)
    shards = [SavedShard(source, lambda: state_dict["state"], keep=True)]
    extra = {key: value for key, value in state_dict.items() if key not in ("state", "param_groups")}
    return SavedState(source, groups, source, shards, None, problems, extra, None if groups is not None else state_dict)


def checked_groups(groups: Any, source: str, problems: List[Problem]) -> Optional[List[Dict[str, Any]]]:
    """
    Check that parameter groups have the form that native ``state_dict`` gives them.

    Args:
        groups (Any): What was saved.
        source (str): What to call its place in messages.
        problems (List[Problem]): Whatever is wrong is added here.

    Returns:
        Optional[List[Dict[str, Any]]]: The groups, or None if they cannot be used at all.
    """
    if not isinstance(groups, (list, tuple)):
        text = "the parameter groups are not a list"
        problems.append(Problem(text, True, source, expected="list", found=type(groups).__name__, remedy=REWRITE))
        return None
    sound = True
    for position, group in enumerate(groups):
        if not isinstance(group, Mapping) or not all(isinstance(key, str) for key in group):
            problems.append(Problem("parameter group {} is not a mapping".format(position), True, source))
            sound = False
        elif not isinstance(group.get("params"), (list, tuple)):
            problems.append(Problem("parameter group {} has no list 'params'".format(position), True, source))
            sound = False
        else:
            wrong = [item for item in group["params"] if isinstance(item, bool) or not isinstance(item, int)]
            if wrong:
                text = "parameter group {} lists ids that are not integers".format(position)
                problems.append(Problem(text, file=source, expected="integers", found=", ".join(map(shown, wrong[:3]))))
                sound = False
    return [dict(group) for group in groups] if sound else None


def _note_spare_ids(index: Dict[Any, str], shards: List[SavedShard]) -> None:
    # Pipeline stages that share a parameter, such as a tied embedding, all save its state, and the index names one of them.
    stages = {shard.path: _STAGE.search(os.path.basename(shard.path)) for shard in shards}
    names = {path: found.group(1) for path, found in stages.items() if found}
    ids_of: Dict[str, Set[Any]] = {name: set() for name in names.values()}
    for param_id, path in index.items():
        if path in names:
            ids_of[names[path]].add(param_id)
    spare = {name: set().union(*(ids for other, ids in ids_of.items() if other != name)) for name in ids_of}
    for shard in shards:
        if shard.path in names:
            shard.spare_ids = spare[names[shard.path]]


def _read_groups_file(path: str, problems: List[Problem]) -> Optional[List[Dict[str, Any]]]:
    try:
        opened = open_torch_file(path)
        try:
            return plain(checked_groups(opened.content, path, problems))
        finally:
            for source in opened.sources:
                source.close()
    except UnreadableFileError as error:
        problems.append(_unreadable(error, path))
        return None


def _unreadable(error: UnreadableFileError, path: str) -> Problem:
    return Problem(str(error), True, path, remedy=REWRITE, missing=error.missing)


def _nested(entries: Dict[str, Any]) -> Dict[Any, Dict[str, Any]]:
    states: Dict[Any, Dict[str, Any]] = {}
    for name, value in entries.items():
        parts = name.split(".", 2)
        if len(parts) != 3 or parts[0] != "state":
            raise UnreadableFileError("it holds {!r}, which is not the state of a parameter".format(shown(name)))
        # Keys that are one number in two ways stay two, and are refused as such.
        states.setdefault(parts[1], {})[parts[2]] = value
    return states
