"""Upstream's two functions for loaders of their own making: groups first, then states shard by shard."""

from typing import Any, Dict
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer

from .optimizer_restore.destination import Destination
from .optimizer_restore.errors import Problem, load_error
from .optimizer_restore.files.saved_state import SavedState, in_memory, normalised_id, open_groups
from .optimizer_restore.restore import restore

__all__ = ["load_param_groups_into_optimizer", "load_states_into_optimizer"]


# For each optimizer the map through which states were loaded last, and their ids. Loaders use one map for all shards.
_last_load = WeakKeyDictionary()


class ParameterIdMap(dict):
    """Parameters by saved id, as :func:`load_param_groups_into_optimizer` returns them: a new map for each load."""


def load_param_groups_into_optimizer(optimizer: Optimizer, param_group_path: str) -> Dict[int, torch.Tensor]:
    """
    Load information of param_groups into an initialized optimizer, and drop its state, which the groups' checkpoint is
    about to replace.

    Args:
        optimizer (Optimizer): The optimizer to be loaded.
        param_group_path (str): The group file of a sharded checkpoint.

    Returns:
        Dict[int, torch.Tensor]: The optimizer's parameters by saved id, for :func:`load_states_into_optimizer`.

    Raises:
        ValueError: If the groups do not fit the optimizer, which is unchanged then.
        RuntimeError: If the file cannot be read. The optimizer is unchanged.
    """
    saved = open_groups(param_group_path)
    restore(Destination(optimizer), lambda: saved)
    ids = [param_id for group in saved.groups or () for param_id in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return ParameterIdMap(dict(zip(ids, params)))


def load_states_into_optimizer(
    optimizer: Optimizer, state_dict: Dict[Any, Dict[str, Any]], id_map: Dict[int, torch.Tensor], strict: bool = False
) -> None:
    """
    Replace the state of an optimizer by saved states.

    The states of calls with the very same ``id_map``, one after another, add up to one checkpoint. With another map
    ``state_dict`` is all that the optimizer holds afterwards.

    Args:
        optimizer (Optimizer): An initialized Optimizer object to be loaded.
        state_dict (Dict[Any, Dict[str, Any]]): A mapping from saved id to state. Its tensors are copied.
        id_map (Dict[int, torch.Tensor]): A mapping from saved id to parameter.
        strict (bool, optional): If True, ids that ``id_map`` lacks are skipped. If False, they are refused. Defaults to
            False.

    Raises:
        ValueError: If a state does not fit its parameter or an id is unknown. The optimizer is unchanged then.
        RuntimeError: If a state is not a mapping, or its id was loaded before through this ``id_map``, which
            :func:`load_param_groups_into_optimizer` has made. The optimizer is unchanged.
    """
    states = {normalised_id(param_id): state for param_id, state in state_dict.items()}
    if strict:
        states = {param_id: state for param_id, state in states.items() if param_id in id_map}
    last_map, loaded = _last_load.get(optimizer, (None, set()))
    if last_map is not id_map:
        loaded = set()
    twice = [param_id for param_id in states if param_id in loaded]
    # Loaders that make a map of their own may give the state of a parameter that pipeline stages share more than once.
    if twice and isinstance(id_map, ParameterIdMap):
        raise load_error([Problem("its state was loaded before", True, None, param_id) for param_id in twice])
    keys = {param_id: id_map.get(param_id, param_id) for param_id in loaded.difference(states)}
    earlier = {param_id: optimizer.state[key] for param_id, key in keys.items() if key in optimizer.state}
    ids = {id(param): param_id for param_id, param in id_map.items()}
    unnamed = iter(range(-1, -1 - sum(len(group["params"]) for group in optimizer.param_groups), -1))
    groups = [
        # A parameter that the map does not name has no saved state, so any id that no state has will do.
        {**group, "params": [ids.get(id(param), next(unnamed)) for param in group["params"]]}
        for group in optimizer.param_groups
    ]
    saved: SavedState = in_memory({"state": {**earlier, **states}, "param_groups": groups}, "the states to be loaded")
    destination = Destination(optimizer)
    destination.taken_ids = set(earlier)
    restore(destination, lambda: saved)
    _last_load[optimizer] = id_map, loaded.union(states)
