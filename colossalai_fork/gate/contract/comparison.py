"""Looks at an optimizer bit by bit, and says how two looks differ."""

import collections
import copy
from typing import Any, Iterator

import torch

#: Longest list of differences that a message carries.
MOST_DIFFERENCES = 8


def frozen(value: Any) -> Any:
    """Copy a value so that nothing that happens later can change it.

    Args:
        value (object): tensors, containers and scalars, nested.

    Returns:
        object: the copy.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(frozen(item) for item in value)
    try:
        return copy.deepcopy(value)
    except TypeError:  # a file that a hostile checkpoint has opened
        return value


def look_at(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Take down everything an optimizer holds.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer.

    Returns:
        dict: its state by (group, position), state that belongs to no parameter, groups and defaults.
    """
    places = {}
    groups = []
    for group_number, group in enumerate(optimizer.param_groups):
        for position, parameter in enumerate(group["params"]):
            places[parameter] = (group_number, position)
        options = {key: frozen(value) for key, value in group.items() if key != "params"}
        groups.append({"number of parameters": len(group["params"]), "options": options})
    state, others = {}, {}
    # Not by looking parameters up: the state is a defaultdict, and asking it for an entry makes one.
    for owner, entries in optimizer.state.items():
        if isinstance(owner, torch.Tensor):
            state[places.get(owner, "a tensor that is no parameter of a group")] = frozen(entries)
        else:
            others[owner] = frozen(entries)
    return {"state": state, "other state": others, "groups": groups, "defaults": frozen(dict(optimizer.defaults))}


def differences(expected: object, found: object, where: str = "", most: int = MOST_DIFFERENCES) -> list[str]:
    """Compare two values bit by bit.

    Args:
        expected (object): what should be there.
        found (object): what is there.
        where (str): what to call the place.
        most (int): how many differences to tell.

    Returns:
        List[str]: one line for each difference, and how many more there are.
    """
    lines = []
    _compare(expected, found, where, lines)
    if len(lines) > most:
        lines[most:] = [f"… and {len(lines) - most} more"]
    return lines


def _compare(expected: object, found: object, where: str, lines: list[str]) -> None:
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        _compare_tensors(expected, found, where, lines)
    elif isinstance(expected, dict) and isinstance(found, dict):
        for key in expected:
            place = f"{where}[{key!r}]"
            if key not in found:
                lines.append(f"{place} is missing, expected {_brief(expected[key])}")
            else:
                _compare(expected[key], found[key], place, lines)
        lines.extend(f"{where}[{key!r}] is {_brief(found[key])}, expected none" for key in found if key not in expected)
    elif type(expected) is not type(found):
        lines.append(f"{where} is {_brief(found)}, expected {_brief(expected)}")
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(found):
            lines.append(f"{where} has length {len(found)}, expected {len(expected)}")
        for number, (one, other) in enumerate(zip(expected, found)):
            _compare(one, other, f"{where}[{number}]", lines)
    elif not _same_scalar(expected, found):
        lines.append(f"{where} is {_brief(found)}, expected {_brief(expected)}")


def _same_scalar(one: object, other: object) -> bool:
    # Not a number differs from itself, and 0.0 equals -0.0.
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


def _compare_tensors(expected: torch.Tensor, found: torch.Tensor, where: str, lines: list[str]) -> None:
    for name in ("dtype", "device", "shape", "layout"):
        if getattr(expected, name) != getattr(found, name):
            lines.append(f"{where} has {name} {getattr(found, name)}, expected {getattr(expected, name)}")
            return
    if not _same_bits(expected, found):
        lines.append(f"{where} is {_brief(found)}, expected {_brief(expected)}")


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_sparse:
        one, other = one.coalesce(), other.coalesce()
        return _same_bits(one.indices(), other.indices()) and _same_bits(one.values(), other.values())
    # Copies, because one element may have any stride even where it is contiguous, and then torch does not show its bytes.
    flat = [each.detach().clone(memory_format=torch.contiguous_format).view(-1) for each in (one, other)]
    return torch.equal(*(each.view(torch.uint8) if each.numel() else each for each in flat))


def _brief(value: object) -> str:
    if isinstance(value, torch.Tensor):
        numbers = value.detach().flatten()[:4].tolist() if not value.is_sparse else "sparse"
        return f"a tensor {tuple(value.shape)} {value.dtype} {numbers}{'…' if value.numel() > 4 else ''}"
    if isinstance(value, dict) and value:
        return f"a mapping of {', '.join(map(str, value))}"
    text = " ".join(repr(value).split())
    return text if len(text) < 120 else text[:117] + "…"


def twin_of(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Copy an optimizer with its parameters and state, without its hooks.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer.

    Returns:
        torch.optim.Optimizer: an independent optimizer of the same class.
    """
    # Not copy.deepcopy: optimizers pickle as defaults, state and groups alone, whatever a subclass keeps beside them.
    twin = object.__new__(type(optimizer))
    memo = {}
    for name, value in vars(optimizer).items():
        if name.endswith("_hooks"):
            twin.__dict__[name] = collections.OrderedDict()
        elif isinstance(value, (dict, list, tuple, torch.Tensor)):
            # State, groups and defaults, and whatever else refers to parameters: LBFGS keeps a list of its own.
            twin.__dict__[name] = copy.deepcopy(value, memo)
        elif name != "step":
            twin.__dict__[name] = value
    return twin


def loose_storages(optimizer: torch.optim.Optimizer) -> list[str]:
    """Find state tensors that keep more memory alive than their own, or share it.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer.

    Returns:
        List[str]: one line for each.
    """
    lines, owners = [], {}
    for entries in optimizer.state.values():
        for name, tensor in _tensors(entries, ""):
            storage = tensor.untyped_storage()
            if storage.nbytes() > tensor.numel() * tensor.element_size():
                lines.append(
                    f"{name} {tuple(tensor.shape)} takes {tensor.numel() * tensor.element_size()} bytes "
                    f"but keeps a storage of {storage.nbytes()} alive"
                )
            if storage.nbytes():
                if storage.data_ptr() in owners:
                    lines.append(f"{name} shares its storage with {owners[storage.data_ptr()]}")
                owners[storage.data_ptr()] = name
    return lines[:MOST_DIFFERENCES]


def _tensors(value: object, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if not value.is_sparse:
            yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(item, f"{name}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _tensors(item, f"{name}[{number}]")
