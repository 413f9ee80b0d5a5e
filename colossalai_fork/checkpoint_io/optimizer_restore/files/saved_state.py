"""A saved optimizer state, opened but not read.

Knows how checkpoints are laid out (index, group file, shards, one file, a state dict in memory) and nothing of optimizers
or ranks. Whatever is wrong with the files is collected in :attr:`SavedState.problems` instead of raised at once.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

from ..errors import Problem
from .safetensors_file import open_safetensors_file
from .sources import UnreadableFileError, require_regular_file
from .torch_file import Opened, open_torch_file, plain

__all__ = ["SavedShard", "SavedState", "in_memory", "is_sharded", "open_groups", "open_sharded", "open_unsharded"]

REWRITE = "Save the checkpoint again, or take an earlier one"

# How the files of a pipeline stage are named, behind a prefix of the user's choice.
_STAGE = re.compile(r".*-stage-(\d+)-")
# Python refuses to make integers of texts of any length.
_NUMBER = re.compile("0|-?[1-9][0-9]{0,99}")
# An entry of an index has some 60 characters. More than this is no index, whatever the optimizer.
_MAX_INDEX = 1 << 30


class SavedShard:
    """
    The states that one file holds.

    Args:
        path (str): What to call it in messages.
        open_file (Callable[[], Opened]): Opens it; the content is states by parameter id.
        lists_every_id (bool, optional): False if parameters whose state is empty leave no trace in this format.
        keep (bool, optional): False if the content takes memory, so that it has to be opened again each time.
    """

    def __init__(
        self, path: str, open_file: Callable[[], Opened], lists_every_id: bool = True, keep: bool = True
    ) -> None:
        self.path = path
        self.lists_every_id = lists_every_id
        self.sources: List[Any] = []
        # Ids of which the file may hold a second copy, because the index gives them to the file of another stage.
        self.spare_ids: Collection[Any] = ()
        self._open_file = open_file
        self._keep = keep
        self._kept: Optional[Dict[Any, Any]] = None

    def states(self) -> Dict[Any, Any]:
        """
        Open the file, or return what is open already.

        Returns:
            Dict[Any, Any]: State by parameter id, without copies of what another file holds. Tensors of files are
                descriptors.

        Raises:
            UnreadableFileError: If the file cannot be opened.
        """
        if self._kept is not None:
            return self._kept
        opened = self._open_file()
        self.sources = opened.sources
        content = opened.content
        if not isinstance(content, Mapping):
            raise UnreadableFileError(
                "it holds a {} where states by parameter id belong".format(type(content).__name__)
            )
        states = {normalised_id(param_id): state for param_id, state in content.items()}
        if len(states) != len(content):
            raise UnreadableFileError("it holds a parameter id twice")
        if self.spare_ids:
            states = {param_id: state for param_id, state in states.items() if param_id not in self.spare_ids}
        for source in self.sources:
            source.rest()
        if self._keep and not opened.fell_back:
            self._kept = states
        return states

    def close(self) -> None:
        """Give open files back."""
        for source in self.sources:
            source.close()


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
        extra (Dict[str, Any]): What a checkpoint of one file holds at its top beside states and groups.
        content (Any): All of a checkpoint of one file whose layout is not that of native ``state_dict``; None otherwise.
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

    def close(self) -> None:
        """Give open files back."""
        for shard in self.shards:
            shard.close()

    def shards_with(self, ids: Collection[Any]) -> Iterator[SavedShard]:
        """
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


def normalised_id(param_id: Any) -> Any:
    """
    Args:
        param_id (Any): A key of a state dict or of an index, where JSON has made a text of it.

    Returns:
        Any: The integer that the text stands for, anything else as it is.
    """
    if isinstance(param_id, str) and _NUMBER.fullmatch(param_id):
        return int(param_id)
    return param_id


def is_sharded(checkpoint: Union[str, Path]) -> Tuple[bool, str]:
    """
    Decide whether a checkpoint is sharded. Never raises, so that ranks which see different files still meet.

    Args:
        checkpoint (Union[str, Path]): A directory, an index file, or a file that holds the whole state.

    Returns:
        Tuple[bool, str]: Whether it is sharded, and the path to open: the index file if there is just one.
    """
    path = Path(checkpoint)
    try:
        if path.is_dir():
            found = sorted(path.glob("*.index.*json"))
            return True, str(found[0] if len(found) == 1 else path)
    except (OSError, ValueError):
        pass  # whoever opens it says what is wrong
    return ".index." in path.name and path.suffix == ".json", str(path)


def open_sharded(index_path: Union[str, Path]) -> SavedState:
    """
    Open a sharded checkpoint: read the index and the group file, and note where the states are.

    Args:
        index_path (Union[str, Path]): The index file.

    Returns:
        SavedState: The checkpoint, with everything that is wrong with its index and groups in ``problems``.
    """
    path = str(index_path)
    problems: List[Problem] = []
    weight_map, metadata = _read_index(path, problems)
    directory = os.path.dirname(os.path.abspath(path))

    groups = None
    groups_path = path
    if not problems:
        name = metadata.get("param_groups")
        if not isinstance(name, str):
            text = "the index names no parameter group file, so this is not an optimizer checkpoint"
            problems.append(Problem(text, damaged=True, file=path))
        elif _stays_inside(directory, name, path, problems):
            groups_path = os.path.join(directory, name)
            groups = _read_groups_file(groups_path, problems)

    index: Dict[Any, str] = {}
    shards: Dict[str, SavedShard] = {}
    for param_id, name in weight_map.items():
        if name not in shards and _stays_inside(directory, name, path, problems, param_id):
            shards[name] = _shard(os.path.join(directory, name))
        if name in shards:
            index[normalised_id(param_id)] = shards[name].path
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
    path = str(path)
    try:
        opened = open_safetensors_file(path) if path.endswith(".safetensors") else open_torch_file(path)
        if path.endswith(".safetensors"):
            entries = opened.content
            groups = {"param_groups": entries.pop("param_groups")} if "param_groups" in entries else {}
            opened.content = {"state": _nested(entries), **groups}
    except UnreadableFileError as error:
        problem = Problem(str(error), damaged=True, file=path, remedy=REWRITE, missing=error.missing)
        return SavedState(path, None, path, [], None, [problem])
    return _of_state_dict(opened, path)


def open_groups(path: Union[str, Path]) -> SavedState:
    """
    Open a group file alone.

    Args:
        path (Union[str, Path]): The file.

    Returns:
        SavedState: A checkpoint with these groups and no state.
    """
    problems: List[Problem] = []
    groups = _read_groups_file(str(path), problems)
    return SavedState(str(path), groups, str(path), [], None, problems)


def in_memory(state_dict: Any, source: str = "the state dict") -> SavedState:
    """
    Treat a state dict as a checkpoint.

    Args:
        state_dict (Any): What ``Optimizer.state_dict`` returns: ``state`` and ``param_groups``.
        source (str, optional): What to call it in messages.

    Returns:
        SavedState: The checkpoint, with everything that is wrong with its layout in ``problems``.
    """
    return _of_state_dict(Opened(state_dict, []), source)


def _of_state_dict(opened: Opened, source: str) -> SavedState:
    problems: List[Problem] = []
    content = opened.content
    if not isinstance(content, Mapping) or not {"state", "param_groups"} <= set(content):
        text = "it is not an optimizer's state dict, which has 'state' and 'param_groups'"
        problems.append(Problem(text, damaged=True, file=source))
        return SavedState(source, None, source, [_closes(opened, source)], None, problems, content=content)
    groups = checked_groups(content["param_groups"], source, problems)
    states = content["state"]
    shards = [SavedShard(source, lambda: Opened(states, opened.sources))]
    rest = {key: value for key, value in content.items() if key not in ("state", "param_groups")}
    try:
        extra = plain(rest)
    except UnreadableFileError as error:
        problems.append(Problem(str(error), damaged=True, file=source))
        extra = {}
    return SavedState(source, groups, source, shards, None, problems, extra, None if groups is not None else content)


def _closes(opened: Opened, source: str) -> SavedShard:
    shard = SavedShard(source, lambda: Opened({}, opened.sources))
    shard.sources = opened.sources
    return shard


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
                problems.append(Problem(text, file=source, expected="integers", found=repr(wrong[:3])))
                sound = False
    if not sound:
        return None
    try:
        # Copies: the groups are changed on the way, and tensors in them are few and small.
        return plain([dict(group) for group in groups])
    except UnreadableFileError as error:
        problems.append(Problem(str(error), True, source, remedy=REWRITE))
        return None


def _read_index(path: str, problems: List[Problem]) -> Tuple[Dict[str, str], Dict[str, Any]]:
    if os.path.isdir(path):
        names = sorted(child.name for child in Path(path).glob("*.index.*json"))
        if names:
            text, remedy = "the directory holds {} index files: {}".format(len(names), ", ".join(names)), "Name one"
        else:
            text, remedy = "the directory holds no index file (*.index.json)", REWRITE
        problems.append(Problem(text, True, path, remedy=remedy, missing=True))
        return {}, {}
    try:
        content = _read_json(path)
    except UnreadableFileError as error:
        text = "the index cannot be opened: {}".format(error)
        problems.append(Problem(text, True, path, remedy=REWRITE, missing=error.missing))
        return {}, {}
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Problem("the index is not readable JSON ({})".format(error), True, path, remedy=REWRITE))
        return {}, {}
    parts = []
    for name in ("weight_map", "metadata"):
        part = content.get(name) if isinstance(content, dict) else None
        if not isinstance(part, dict):
            problems.append(Problem("the index has no mapping {!r}".format(name), True, path, remedy=REWRITE))
            part = {}
        parts.append(part)
    weight_map, metadata = parts
    for param_id, name in weight_map.items():
        if not isinstance(name, str):
            problems.append(Problem("the index gives no file name", True, path, normalised_id(param_id)))
    return {key: name for key, name in weight_map.items() if isinstance(name, str)}, metadata


def _read_json(path: str) -> Any:
    if require_regular_file(path) > _MAX_INDEX:
        raise UnreadableFileError("it is larger than any index")
    with open(path, "r", encoding="utf-8") as file:
        return json.load(file)


def _stays_inside(directory: str, name: str, index_path: str, problems: List[Problem], param_id: Any = None) -> bool:
    param_id = normalised_id(param_id)
    if name.endswith((".*.bin", ".*.safetensors")):
        text = "the index names distributed-tensor files ({})".format(name)
        problems.append(Problem(text, False, index_path, param_id, remedy="Gather them into whole tensors first"))
        return False
    inside = os.path.normpath(os.path.join(directory, name))
    if os.path.isabs(name) or not inside.startswith(os.path.join(os.path.normpath(directory), "")):
        text = "the index names a file outside of the checkpoint's directory ({!r})".format(name)
        problems.append(Problem(text, True, index_path, param_id, remedy="Do not trust this checkpoint"))
        return False
    return True


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
    except UnreadableFileError as error:
        problems.append(Problem(str(error), True, path, remedy=REWRITE, missing=error.missing))
        return None
    try:
        return checked_groups(opened.content, path, problems)
    finally:
        for source in opened.sources:
            source.close()


def _shard(path: str) -> SavedShard:
    if not path.endswith(".safetensors"):
        return SavedShard(path, lambda: open_torch_file(path))

    def open_file() -> Opened:
        opened = open_safetensors_file(path)
        return Opened(_nested(opened.content), opened.sources)

    return SavedShard(path, open_file, lists_every_id=False)


def _nested(entries: Dict[str, Any]) -> Dict[Any, Dict[str, Any]]:
    states: Dict[Any, Dict[str, Any]] = {}
    for name, value in entries.items():
        parts = name.split(".", 2)
        if len(parts) != 3 or parts[0] != "state":
            raise UnreadableFileError("it holds {!r}, which is not the state of a parameter".format(name))
        states.setdefault(normalised_id(parts[1]), {})[parts[2]] = value
    return states
