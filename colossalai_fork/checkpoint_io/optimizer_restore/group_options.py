"""Whether saved parameter groups have the options that an optimizer needs."""

import inspect
from collections import defaultdict
from typing import Any, Dict, List, Optional, Set

from torch.optim import Optimizer

from .destination import Destination
from .errors import Problem
from .state_kinds import is_well_known

__all__ = ["check_options"]


def check_options(destination: Destination, groups: List[Dict[str, Any]], source: str, problems: List[Problem]) -> None:
    """
    Find groups that another kind of optimizer has saved.

    Args:
        destination (Destination): The optimizer.
        groups (List[Dict[str, Any]]): The saved groups for its groups.
        source (str): What to call their place in messages.
        problems (List[Problem]): Whatever is missing is added here.
    """
    # Some defaults never reach the groups: unpickling adds "differentiable" to those of every optimizer.
    defaults = set(getattr(destination.optimizer, "defaults", ()))
    needed = [defaults & set(group) for group in destination.param_groups]
    missing = [keys - set(group) for keys, group in zip(needed, groups)]
    if not any(missing):
        return
    missing = _needed_by_class(destination, groups, missing)
    for position, keys in enumerate(missing):
        if keys:
            text = "parameter group {} was saved by another kind of optimizer: {} needs {}".format(
                position, destination.optimizer_class.__name__, ", ".join(sorted(keys))
            )
            found = ", ".join(sorted(set(groups[position]) - {"params"}))
            problems.append(Problem(text, False, source, expected=", ".join(sorted(needed[position])), found=found))


def _needed_by_class(destination: Destination, groups: List[Dict[str, Any]], missing: List[Set[str]]) -> List[Set[str]]:
    optimizer_class = destination.optimizer_class
    base = _well_known_base(optimizer_class)
    if base is not None:
        filled = _filled_by_setstate(base, destination.optimizer.defaults, groups)
        missing = [keys - set(group) for keys, group in zip(missing, filled)]
    if base is optimizer_class:
        return missing
    # A class of the user's own may do without an option that older files lack, or fill it in.
    if not is_well_known(_class_with_setstate(optimizer_class)):
        return [set() for _ in missing]
    if base is not None:
        taken = set(inspect.signature(base.__init__).parameters)
        missing = [keys & taken for keys in missing]
    else:
        present = [set(group) for group in destination.param_groups]
        missing = [keys if set(saved) - own else set() for keys, saved, own in zip(missing, groups, present)]
    return [keys & own for keys, own in zip(missing, _saved_by_itself(destination, missing))]


def _well_known_base(optimizer_class: type) -> Optional[type]:
    for base in optimizer_class.__mro__:
        if base is Optimizer:
            return None
        if is_well_known(base):
            return base
    return None


def _class_with_setstate(optimizer_class: type) -> type:
    return next((each for each in optimizer_class.__mro__ if "__setstate__" in vars(each)), Optimizer)


def _filled_by_setstate(base: type, defaults: Dict[str, Any], groups: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    # What __setstate__ fills in is the class's own knowledge, so it is asked, on an object that has no parameters and
    # nothing but what unpickling an optimizer would give it. Never a class of the user's own, which may count on more.
    probe = object.__new__(base)
    probe.__dict__["defaults"] = dict(defaults)
    copies = [dict(group, params=[]) for group in groups]
    try:
        probe.__setstate__({"state": defaultdict(dict), "param_groups": copies})
    except Exception:
        # A class that cannot be unpickled cannot be asked. Native loading decides.
        return [dict.fromkeys(defaults) for _ in groups]
    return probe.__dict__["param_groups"]


def _saved_by_itself(destination: Destination, missing: List[Set[str]]) -> List[Set[str]]:
    # An optimizer whose state_dict() leaves an option out cannot ask files for it.
    if not any(missing):
        return missing
    try:
        shown = destination.optimizer.state_dict()["param_groups"]
        return [set(group) for group in shown] if len(shown) == len(missing) else missing
    except Exception:
        return missing
