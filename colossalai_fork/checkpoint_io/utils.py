"""Upstream's two functions for loaders of their own making: groups first, then states shard by shard."""

from typing import Any, Dict, List

import torch
from torch.optim import Optimizer

from .optimizer_restore.destination import Destination, SomeParameters
from .optimizer_restore.files.saved_state import in_memory, normalised_id, open_groups
from .optimizer_restore.restore import restore

__all__ = ["load_param_groups_into_optimizer", "load_states_into_optimizer"]


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
    return dict(zip(ids, params))


def load_states_into_optimizer(
    optimizer: Optimizer, state_dict: Dict[Any, Dict[str, Any]], id_map: Dict[int, torch.Tensor], strict: bool = False
) -> None:
    """
    Replace the state of some of an optimizer's parameters. That of the others stays, so shards can be loaded one after
    another.

    Args:
        optimizer (Optimizer): An initialized Optimizer object to be loaded.
        state_dict (Dict[Any, Dict[str, Any]]): A mapping from saved id to state. Its tensors are copied.
        id_map (Dict[int, torch.Tensor]): A mapping from saved id to parameter.
        strict (bool, optional): If True, ids that ``id_map`` lacks are skipped. If False, they are refused. Defaults to
            False.

    Raises:
        ValueError: If a state does not fit its parameter or an id is unknown. The optimizer is unchanged then.
        RuntimeError: If a state is not a mapping. The optimizer is unchanged.
    """
    states = {normalised_id(param_id): state for param_id, state in state_dict.items()}
    if strict:
        states = {param_id: state for param_id, state in states.items() if param_id in id_map}
    ids = {id(id_map[param_id]): param_id for param_id in states if param_id in id_map}
    present: List[Dict[str, Any]] = []
    saved: List[Dict[str, Any]] = []
    for group in optimizer.param_groups:
        params = [param for param in group["params"] if id(param) in ids]
        present.append({**group, "params": params})
        saved.append({**group, "params": [ids[id(param)] for param in params]})
    content = {"state": states, "param_groups": saved}
    restore(SomeParameters(optimizer, present), lambda: in_memory(content, "the states to be loaded"))
