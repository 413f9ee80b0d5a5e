"""The index of a sharded checkpoint: which file holds the state of which parameter."""

import json
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

from ..errors import Problem
from .plain_pickle import shown
from .sources import FileSource, UnreadableFileError

__all__ = ["REWRITE", "is_sharded", "normalised_id", "path_inside", "read_index"]

REWRITE = "Save the checkpoint again, or take an earlier one"

# Python refuses to make integers of texts of any length, and no optimizer has ids of more digits.
_NUMBER = re.compile("0|-?[1-9][0-9]{0,99}")
# The index of a million parameters takes some 50 MB.
_LARGEST_INDEX = 1 << 30
_LONGEST_NAME = 4096


def normalised_id(param_id: Any) -> Any:
    """
    Turn the id that an index gives as a text into an integer.

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
    path = os.fspath(checkpoint)
    try:
        found = _index_names(path) if os.path.isdir(path) else None
    except (OSError, ValueError):
        # A directory that cannot be looked into. Opening it says so.
        return True, path
    if found is not None:
        return True, os.path.join(path, found[0]) if len(found) == 1 else path
    name = os.path.basename(path)
    return ".index." in name and name.endswith(".json"), path


def _index_names(directory: str) -> List[str]:
    return sorted(name for name in os.listdir(directory) if re.search(r"\.index\..*json$", name, re.DOTALL))


def read_index(path: str, problems: List[Problem]) -> Tuple[Dict[str, str], Dict[str, Any]]:
    """
    Read an index file.

    Args:
        path (str): The index file, or a directory that does not have just one.
        problems (List[Problem]): Whatever is wrong is added here.

    Returns:
        Tuple[Dict[str, str], Dict[str, Any]]: The names of the files by parameter id as a text, and the metadata.
    """
    content = _read_json(path, problems)
    parts = []
    for name in ("weight_map", "metadata") if content is not None else ():
        part = content.get(name)
        if not isinstance(part, dict):
            problems.append(Problem("the index has no mapping {!r}".format(name), True, path, remedy=REWRITE))
            part = {}
        parts.append(part)
    weight_map, metadata = parts or ({}, {})
    for param_id, name in weight_map.items():
        if not isinstance(name, str):
            problems.append(Problem("the index gives no file name", True, path, normalised_id(param_id)))
    return {key: name for key, name in weight_map.items() if isinstance(name, str)}, metadata


def _read_json(path: str, problems: List[Problem]) -> Any:
    try:
        if os.path.isdir(path):
            _note_directory(path, problems)
            return None
        source = FileSource(path)
        try:
            if source.size > _LARGEST_INDEX:
                raise UnreadableFileError("it has {} bytes".format(source.size))
            content = json.loads(source.read_bytes(0, source.size).decode("utf-8"))
            if not isinstance(content, dict):
                raise ValueError("it is no object")
            return content
        finally:
            source.close()
    except UnreadableFileError as error:
        text = "the index cannot be opened: {}".format(error)
        problems.append(Problem(text, True, path, remedy=REWRITE, missing=error.missing))
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        text = "the index is not readable JSON ({})".format(shown(str(error)))
        problems.append(Problem(text, True, path, remedy=REWRITE))
    return None


def _note_directory(path: str, problems: List[Problem]) -> None:
    names = _index_names(path)
    if names:
        listed = ", ".join(map(shown, names[:5])) + (", ..." if len(names) > 5 else "")
        text, remedy = "the directory holds {} index files: {}".format(len(names), listed), "Name one"
    else:
        text, remedy = "the directory holds no index file (*.index.json)", REWRITE
    problems.append(Problem(text, True, path, remedy=remedy, missing=not names))


def path_inside(directory: str, name: str, index_path: str, problems: List[Problem], param_id: Any = None) -> str:
    """
    Make the path of a file that an index names, if it lies beside the index.

    Args:
        directory (str): The directory of the checkpoint.
        name (str): The name of a file that the index gives.
        index_path (str): The index.
        problems (List[Problem]): Whatever is wrong is added here.
        param_id (Any, optional): The parameter that the index gives the name for.

    Returns:
        str: The path of the file, or nothing if it may not be opened.
    """
    param_id = normalised_id(param_id)
    if name.endswith((".*.bin", ".*.safetensors")):
        text = "the index names distributed-tensor files ({})".format(shown(name))
        problems.append(Problem(text, False, index_path, param_id, remedy="Gather them into whole tensors first"))
        return ""
    if len(name) > _LONGEST_NAME or "\0" in name:
        text = "the index names a file by what cannot be a name ({!r})".format(shown(name))
        problems.append(Problem(text, True, index_path, param_id, remedy=REWRITE))
        return ""
    inside = os.path.normpath(os.path.join(directory, name))
    if os.path.isabs(name) or not inside.startswith(os.path.join(os.path.normpath(directory), "")):
        text = "the index names a file outside of the checkpoint's directory ({!r})".format(shown(name))
        problems.append(Problem(text, True, index_path, param_id, remedy="Do not trust this checkpoint"))
        return ""
    return os.path.join(directory, name)
