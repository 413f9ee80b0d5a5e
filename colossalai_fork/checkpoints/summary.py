"""What a checkpoint holds, as plain data: no byte of a tensor is read for it."""

import collections
import os
from typing import Any

from ..checkpoint_io.optimizer_restore.errors import Problem, shown
from ..checkpoint_io.optimizer_restore.state_kinds import is_tensor
from .opened import Checkpoint


def summary(checkpoint: Checkpoint) -> dict[str, Any]:
    """Tell what a checkpoint holds.

    Args:
        checkpoint (Checkpoint): the checkpoint.

    Returns:
        dict: plain data, ready for JSON.
    """
    return {
        "checkpoint": checkpoint.path,
        "sound": not checkpoint.problems,
        "manifest": checkpoint.saved.manifest and checkpoint.saved.manifest.path,
        "files": [_file(checkpoint, path) for path in checkpoint.saved.files],
        "groups": [_group(group) for group in checkpoint.groups],
        "states": _kinds(checkpoint.states),
        "problems": [problem_as_data(problem) for problem in checkpoint.problems],
    }


def of_parameter(checkpoint: Checkpoint, param_id: int) -> dict[str, Any] | None:
    """Tell what a checkpoint holds of one parameter.

    Args:
        checkpoint (Checkpoint): the checkpoint.
        param_id (int): its saved id.

    Returns:
        dict | None: plain data, ready for JSON; None if neither groups nor files know the id.
    """
    positions = [position for position, group in enumerate(checkpoint.groups) if param_id in group["params"]]
    path, state = checkpoint.by_id().get(param_id, (None, {}))
    if not positions and path is None:
        return None
    group = checkpoint.groups[positions[0]] if positions else {}
    names = group.get("param_names")
    return {
        "id": param_id,
        "name": _plain(names[group["params"].index(param_id)]) if names else None,
        "group": positions[0] if positions else None,
        "file": path and os.path.basename(path),
        "state": [_value(key, value) for key, value in (state.items() if isinstance(state, dict) else [("", state)])],
        "problems": [problem_as_data(each) for each in checkpoint.problems if each.param_id == param_id],
    }


def problem_as_data(problem: Problem) -> dict[str, Any]:
    """Return a problem's parts, ready for JSON."""
    parts = ("file", "param_id", "key", "expected", "found", "remedy", "damaged")
    return {
        "problem": str(problem),
        "text": problem.text,
        **{part: _plain(getattr(problem, part)) for part in parts},
    }


def kind_of(value: Any) -> str:
    """Return a short text for what a value of a state is."""
    if not is_tensor(value):
        return type(value).__name__
    return str(value.dtype).removeprefix("torch.") + (", one number" if value.dim() == 0 else "")


def _file(checkpoint: Checkpoint, path: str) -> dict[str, Any]:
    saved = checkpoint.saved
    role = "states" if path in checkpoint.states else "groups" if path == saved.groups_source else "index"
    size = os.path.getsize(path) if os.path.isfile(path) else None
    name = shown(os.path.relpath(path, os.path.dirname(os.path.abspath(saved.source))))
    ids = len(checkpoint.states[path]) if path in checkpoint.states else None
    return {"name": name, "role": role, "bytes": size, "ids": ids}


def _group(group: dict[str, Any]) -> dict[str, Any]:
    settings = {key: _plain(value) for key, value in group.items() if key not in ("params", "param_names")}
    return {"parameters": len(group["params"]), "settings": settings}


def _kinds(states: dict[str, dict[Any, Any]]) -> list[dict[str, Any]]:
    counts, sizes = collections.Counter(), collections.Counter()
    for of_file in states.values():
        for state in of_file.values():
            for key, value in (state if isinstance(state, dict) else {}).items():
                kind = str(shown(str(key))), kind_of(value)
                counts[kind] += 1
                sizes[kind] += _size(value)
    return [
        {"key": key, "kind": kind, "parameters": counts[key, kind], "bytes": sizes[key, kind]}
        for key, kind in sorted(counts)
    ]


def _size(value: Any) -> int:
    return value.numel() * value.dtype.itemsize if is_tensor(value) else 0


def _value(key: Any, value: Any) -> dict[str, Any]:
    described = {"key": str(shown(str(key))), "kind": kind_of(value)}
    if is_tensor(value):
        return {**described, "shape": list(value.shape), "bytes": _size(value)}
    return {**described, "value": _plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value not in (float("inf"), float("-inf")) and value == value:
        return value
    if value is None or isinstance(value, (bool, str)) or type(value) is int and value.bit_length() <= 64:
        return shown(value)
    if isinstance(value, (list, tuple)) and len(value) <= 16:
        return [_plain(item) for item in value]
    return str(shown(value))
