"""Check a saved state against an optimizer without changing either."""

from typing import Any, Dict, List, Optional, Tuple

import torch

from .destination import Destination
from .errors import Problem
from .files.saved_state import SavedState
from .group_options import check_options
from .placement import Placement
from .plan import Plan
from .state_check import StateCheck

__all__ = ["validate"]


def validate(saved: SavedState, destination: Destination, problems: List[Problem]) -> Optional[Plan]:
    """
    Check everything that can be known before the optimizer changes.

    Args:
        saved (SavedState): The opened checkpoint.
        destination (Destination): The optimizer.
        problems (List[Problem]): Whatever is wrong is added here.

    Returns:
        Optional[Plan]: What to do, or None if the parameter groups already make that impossible to say. Only to be
            carried out if ``problems`` is empty.
    """
    problems.extend(saved.problems)
    if saved.groups is None:
        return None
    groups = destination.local_groups(saved.groups, saved.groups_source, problems)
    if groups is None:
        return None
    check_options(destination, groups, saved.groups_source, problems)
    _check_names(destination, groups, saved.groups_source, problems)
    targets = _targets(destination, groups, saved.groups_source, problems)
    known = {param_id for group in saved.groups for param_id in group["params"]}
    known.update(targets)
    shards = list(saved.shards_with(targets))
    _check_index(saved, known, problems)
    StateCheck(saved, known, targets, groups, destination, problems).check(shards)
    return Plan(groups, targets, shards, saved.extra)


def _targets(
    destination: Destination, groups: List[Dict[str, Any]], source: str, problems: List[Problem]
) -> Dict[int, Tuple[torch.Tensor, Placement]]:
    targets: Dict[int, Tuple[torch.Tensor, Placement]] = {}
    for group, saved in zip(destination.param_groups, groups):
        for param, param_id in zip(group["params"], saved["params"]):
            known = targets.get(param_id)
            if known is None:
                targets[param_id] = (param, destination.placement(param))
            elif known[0] is not param:
                # The same id twice is right for a parameter that the group holds twice.
                problems.append(Problem("the id stands for two different parameters", False, source, param_id))
    return targets


def _check_index(saved: SavedState, known: Any, problems: List[Problem]) -> None:
    for param_id in saved.index or ():
        if isinstance(param_id, int) and param_id not in known:
            text = "the index lists an id that no parameter group has"
            problems.append(Problem(text, False, saved.source, param_id))


def _check_names(destination: Destination, groups: List[Dict[str, Any]], source: str, problems: List[Problem]) -> None:
    saved = [name for group in groups for name in group.get("param_names") or ()]
    present = [name for group in destination.param_groups for name in group.get("param_names") or ()]
    # Other names are a renamed model, which native loading accepts. The same names elsewhere are state that would go to
    # the wrong parameter.
    if len(saved) != len(present) or sorted(map(str, saved)) != sorted(map(str, present)):
        return
    ids: List[Any] = [param_id for group in groups for param_id in group["params"]]
    if len(ids) != len(saved):
        # This rank holds a part of the parameters that its groups name.
        ids = [None] * len(saved)
    for param_id, found, expected in zip(ids, saved, present):
        if found != expected:
            text = "the saved parameter has the name of another one"
            remedy = "Build the optimizer with its parameters in the saved order"
            problems.append(Problem(text, False, source, param_id, None, repr(expected), repr(found), remedy))
