"""Save a sharded optimizer beside the one that a directory holds, then switch from the old to the new one at once.

An index file alone decides what a checkpoint is. The class's own saver writes into a fresh directory inside of the target;
what it wrote then moves next to the old files, under names that no index has, and the new index takes the place of the old
one in a single step. Ended at any point, the directory holds exactly the old checkpoint or exactly the new one.
"""

import fcntl
import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Set

import torch.distributed as dist
from torch.distributed import ProcessGroup

__all__ = ["MANIFEST", "save_beside", "says_who_writes"]

# What the name of an index file, or of a file that holds the whole state, is followed by in the name of its checksums.
MANIFEST = ".manifest"

_LOCK = "in-use"
# A file of an optimizer: what all files of one save share, the pipeline stage (and expert rank), and a number.
_NAME = re.compile(r"(.+?)(-stage-\d{5}(?:-\d{5})?-shard)?(?:-(\d{5,}))?(\.bin|\.safetensors)")


def says_who_writes(checkpoint_io: Any) -> bool:
    """
    Tell whether a checkpoint IO knows which of its ranks write.

    Args:
        checkpoint_io (CheckpointIO): A checkpoint IO.

    Returns:
        bool: Whether its ``optimizer_writers`` is about the ``save_sharded_optimizer`` that it has. A subclass with a saver
            of its own may write whatever it likes, from any rank.
    """
    for cls in type(checkpoint_io).__mro__:
        if "optimizer_writers" in vars(cls):
            return True
        if "save_sharded_optimizer" in vars(cls):
            return False
    return False


def save_beside(checkpoint: str, index_name: str, save: Callable[[str], None], group: Optional[ProcessGroup]) -> None:
    """
    Save a sharded optimizer so that the directory holds the old checkpoint until it holds the new one.

    Must be called on every rank of ``group``; without one, on the only rank that writes.

    Args:
        checkpoint (str): The directory. Made if it is not there.
        index_name (str): The name of the index file in it.
        save (Callable[[str], None]): Saves into the directory that it is given. On the group's first rank it returns when
            every rank's files are complete.
        group (ProcessGroup, optional): The ranks that write together.

    Raises:
        OSError: If something cannot be written. The old checkpoint is as it was.
    """
    if group is not None and dist.get_rank(group) != 0:
        name = _announced(None, group)
        path = os.path.join(checkpoint, name or "")
        # The first rank may be on another machine, with a directory of its own: then this one saves as it always did.
        save(path if name and os.path.isdir(path) else checkpoint)
        return
    fresh = None
    try:
        os.makedirs(checkpoint, exist_ok=True)
        fresh = _FreshDirectory(checkpoint, index_name)
    finally:
        if group is not None:
            _announced(fresh and fresh.name, group)
    try:
        save(fresh.path)
        if os.path.isfile(os.path.join(fresh.path, index_name)):
            _switch(fresh.path, checkpoint, index_name)
        if group is not None:
            # Ranks that take part in gathering, but write nothing, have made this in the target, as they always did.
            shutil.rmtree(os.path.join(checkpoint, "tmp_index_files"), ignore_errors=True)
    finally:
        fresh.remove()


def _announced(name: Optional[str], group: ProcessGroup) -> Optional[str]:
    said = [name]
    dist.broadcast_object_list(said, src=dist.get_global_rank(group, 0), group=group)
    return said[0]


class _FreshDirectory:
    """
    An empty directory that nobody else saves into. What interrupted saves of the same checkpoint have left is removed.

    Args:
        parent (str): The directory to make it in.
        index_name (str): The name of the checkpoint's index file.
    """

    def __init__(self, parent: str, index_name: str) -> None:
        start = ".{}.saving-".format(index_name)
        for name in os.listdir(parent):
            if name.startswith(start):
                _remove_if_abandoned(os.path.join(parent, name))
        token = uuid.uuid4().hex[:12]
        self.name = start + token
        self.path = os.path.join(parent, self.name)
        made = os.path.join(parent, ".{}.beginning-{}".format(index_name, token))
        os.mkdir(made)
        self._lock = os.open(os.path.join(made, _LOCK), os.O_RDWR | os.O_CREAT)
        _locked(self._lock)
        # Only now does it have a name that others look for, and would remove without the lock.
        os.rename(made, self.path)

    def remove(self) -> None:
        """Remove it with what is left in it."""
        try:
            shutil.rmtree(self.path, ignore_errors=True)
        finally:
            os.close(self._lock)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Somebody has it, or the file system has no locks: then nothing tells whether somebody is still there.
        return False
    return True


def _remove_if_abandoned(path: str) -> None:
    try:
        descriptor = os.open(os.path.join(path, _LOCK), os.O_RDWR)
    except FileNotFoundError:
        # Its removal was interrupted.
        shutil.rmtree(path, ignore_errors=True)
        return
    except OSError:
        return
    try:
        if _locked(descriptor):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _switch(fresh: str, checkpoint: str, index_name: str) -> None:
    files = sorted(name for name in os.listdir(fresh) if name not in (index_name, _LOCK))
    new_names = _free_names(files, _named_by_indexes(checkpoint))
    new_index = os.path.join(fresh, index_name)
    _rename_in_index(new_index, new_names)
    for name in (*files, index_name):
        _flush(os.path.join(fresh, name))
    for name in files:
        os.replace(os.path.join(fresh, name), os.path.join(checkpoint, new_names[name]))
    _flush(checkpoint)
    os.replace(new_index, os.path.join(checkpoint, index_name))
    _flush(checkpoint)
    _remove_old_files(checkpoint, index_name, new_names)


def _named_by_indexes(directory: str) -> Set[str]:
    # Several checkpoints may share a directory, of a model and of optimizers with other prefixes, and even a group file.
    named: Set[str] = set()
    for path in Path(directory).glob("*.index*.json"):
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            names = [*index["weight_map"].values(), index["metadata"].get("param_groups")]
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # nobody can load it
        named.update(os.path.normpath(name) for name in names if isinstance(name, str))
    return named


def _free_names(names: Iterable[str], taken: Set[str]) -> Dict[str, str]:
    numbers: Dict[str, int] = {}
    free: Dict[str, str] = {}
    for name in names:
        parts = _NAME.fullmatch(name)
        if parts is None or (parts.group(3) is None and name not in taken):
            free[name] = name
            continue
        pattern = "{}{}-{{:05d}}{}".format(parts.group(1), parts.group(2) or "", parts.group(4))
        number = numbers.get(pattern, 0) + 1
        while pattern.format(number) in taken:
            number += 1
        numbers[pattern] = number
        free[name] = pattern.format(number)
    return free


def _rename_in_index(path: str, new_names: Dict[str, str]) -> None:
    with open(path, encoding="utf-8") as file:
        index = json.load(file)
    index["weight_map"] = {key: new_names.get(name, name) for key, name in index["weight_map"].items()}
    groups = index["metadata"].get("param_groups")
    index["metadata"]["param_groups"] = new_names.get(groups, groups)
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(index, indent=2) + "\n")


def _flush(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        # Some file systems cannot do that to a directory.
        if not os.path.isdir(path):
            raise


def _remove_old_files(checkpoint: str, index_name: str, new_names: Dict[str, str]) -> None:
    kept = _named_by_indexes(checkpoint).union(new_names.values())
    kinds = {parts.group(1, 4) for parts in map(_NAME.fullmatch, new_names) if parts}
    old: List[str] = [index_name + MANIFEST]
    for name in os.listdir(checkpoint):
        parts = _NAME.fullmatch(name)
        if name in new_names or (parts and parts.group(3) and parts.group(1, 4) in kinds):
            old.append(name)
    for name in old:
        if name not in kept:
            try:
                os.unlink(os.path.join(checkpoint, name))
            except OSError:
                pass  # it is not there, or stays: nothing names it
