"""Check a saved state against an optimizer without changing either."""

from collections import defaultdict
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import torch
from torch.optim import Optimizer

from .destination import Destination
from .errors import Problem, load_error
from .files.saved_file import UnreadableFileError
from .files.saved_state import REWRITE, SavedShard, SavedState
from .placement import Placement, Replicated
from .state_kinds import AVERAGED_STATE, ELEMENTWISE_STATE, NAMES_OF_MANY_MEANINGS, SCALAR_STATE, placement_of_state

__all__ = ["Plan", "validate"]

WELL_KNOWN_OPTIMIZERS = ("torch.optim.", "colossalai.nn.optimizer.")
# No optimizer nests its state like this. Deeper, and with cycles, recursion would fail when the old state is gone already.
MAX_NESTING = 100


class Plan:
    """
    A validated load: what goes where.

    Args:
        groups (List[Dict[str, Any]]): The saved groups for the optimizer's groups, ``params`` holding saved ids.
        targets (Dict[int, Tuple[torch.Tensor, Placement]]): The parameter of each saved id that this rank keeps, and
            the part of it.
        shards (List[SavedShard]): The shards to read.
    """

    def __init__(
        self,
        groups: List[Dict[str, Any]],
        targets: Dict[int, Tuple[torch.Tensor, Placement]],
        shards: List[SavedShard],
    ) -> None:
        self.groups = groups
        self.targets = targets
        self.shards = shards

    def states(self) -> Iterator[Tuple[Any, Optional[torch.Tensor], Dict[str, Any]]]:
        """
        Open the shards one after another.

        Yields:
            Tuple[Any, Optional[torch.Tensor], Dict[str, Any]]: Saved id, parameter (None for state of the optimizer as a
                whole), and this rank's part of the state. Tensors may alias the checkpoint.

        Raises:
            CheckpointDamagedError: If a shard can no longer be opened.
        """
        for shard in self.shards:
            for param_id, state in opened(shard).items():
                if param_id in self.targets:
                    param, placement = self.targets[param_id]
                    if placement.divides:
                        state = {key: own_part(placement, key, value) for key, value in state.items()}
                    yield param_id, param, state
                elif not isinstance(param_id, int):
                    yield param_id, None, state


def opened(shard: SavedShard) -> Dict[Any, Any]:
    """
    Args:
        shard (SavedShard): A shard that validation has opened before.

    Returns:
        Dict[Any, Any]: Its states by parameter id.

    Raises:
        CheckpointDamagedError: If it can no longer be opened.
    """
    try:
        return shard.states()
    except UnreadableFileError as error:
        text = "the file was sound a moment ago: {}".format(error)
        raise load_error([Problem(text, True, shard.path, remedy=REWRITE)]) from error


def everything_in(shards: List[SavedShard]) -> Dict[int, Tuple[Any, Placement]]:
    """
    Args:
        shards (List[SavedShard]): Shards that can be opened.

    Returns:
        Dict[int, Tuple[Any, Placement]]: Targets that stand for no parameter yet, for all that the shards hold.
    """
    whole = Replicated(())
    return {param_id: (None, whole) for shard in shards for param_id in opened(shard) if isinstance(param_id, int)}


def is_divided(placement: Placement, key: str, value: Any) -> bool:
    """
    Args:
        placement (Placement): The part of the parameter that this rank keeps.
        key (str): The state's name.
        value (Any): The saved value.

    Returns:
        bool: Whether the rank keeps a part of the value rather than all of it.
    """
    if not placement.divides or not isinstance(value, torch.Tensor) or key == "step":
        return False
    return value.dim() > 0 or (placement.global_shape == () and key not in SCALAR_STATE)


def own_part(placement: Placement, key: str, value: Any) -> Any:
    """
    Args:
        placement (Placement): The part of the parameter that this rank keeps.
        key (str): The state's name.
        value (Any): The saved value, which has been validated.

    Returns:
        Any: What this rank keeps of it.
    """
    part = placement_of_state(placement, key)
    return part.cut(value) if part is not None and is_divided(part, key, value) else value


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
    optimizer = destination.optimizer
    _check_hyperparameters(optimizer, groups, saved.groups_source, problems)
    _check_names(optimizer, groups, saved.groups_source, problems)
    targets = _targets(destination, groups, saved.groups_source, problems)
    known = {param_id for group in saved.groups for param_id in group["params"]}
    known.update(targets)
    shards = list(saved.shards_with(targets))
    _check_index(saved, known, problems)
    _StateCheck(saved, known, targets, groups, optimizer, problems).check(shards)
    return Plan(groups, targets, shards)


def _targets(
    destination: Destination, groups: List[Dict[str, Any]], source: str, problems: List[Problem]
) -> Dict[int, Tuple[torch.Tensor, Placement]]:
    targets: Dict[int, Tuple[torch.Tensor, Placement]] = {}
    for group, saved in zip(destination.optimizer.param_groups, groups):
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


# ======================================
# parameter groups
# ======================================


def _check_hyperparameters(
    optimizer: Optimizer, groups: List[Dict[str, Any]], source: str, problems: List[Problem]
) -> None:
    # Some defaults never reach the groups: unpickling adds "differentiable" to those of every optimizer.
    needed = [set(optimizer.defaults) & set(group) for group in optimizer.param_groups]
    if all(keys <= set(group) for keys, group in zip(needed, groups)):
        return
    filled = _after_setstate(optimizer, groups)
    for position, keys in enumerate(needed):
        missing = sorted(keys - set(filled[position]))
        if missing:
            text = "parameter group {} was saved by another kind of optimizer: {} needs {}".format(
                position, type(optimizer).__name__, ", ".join(missing)
            )
            found = sorted(set(groups[position]) - {"params"})
            problems.append(Problem(text, False, source, expected=sorted(keys), found=found))


def _after_setstate(optimizer: Optimizer, groups: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    # What __setstate__ fills in is the optimizer class's own knowledge, so it is asked, on an object that has no
    # parameters and nothing but what unpickling an optimizer would give it.
    probe = object.__new__(type(optimizer))
    probe.__dict__["defaults"] = dict(optimizer.defaults)
    copies = [dict(group, params=[]) for group in groups]
    try:
        probe.__setstate__({"state": defaultdict(dict), "param_groups": copies})
    except Exception:
        # A class that cannot be unpickled cannot be asked. Native loading decides.
        return [dict.fromkeys(optimizer.defaults) for _ in groups]
    return probe.__dict__["param_groups"]


def _check_names(optimizer: Optimizer, groups: List[Dict[str, Any]], source: str, problems: List[Problem]) -> None:
    saved = [name for group in groups for name in group.get("param_names") or ()]
    present = [name for group in optimizer.param_groups for name in group.get("param_names") or ()]
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


# ======================================
# states
# ======================================


class _StateCheck:
    """
    Checks the states of some shards.

    Args:
        saved (SavedState): The checkpoint.
        known (Any): Every id of the saved groups.
        targets (Dict[int, Tuple[torch.Tensor, Placement]]): The ids that this rank keeps.
        groups (List[Dict[str, Any]]): The saved groups for this rank's optimizer.
        optimizer (Optimizer): The optimizer.
        problems (List[Problem]): Whatever is wrong is added here.
    """

    def __init__(
        self,
        saved: SavedState,
        known: Any,
        targets: Dict[int, Tuple[torch.Tensor, Placement]],
        groups: List[Dict[str, Any]],
        optimizer: Optimizer,
        problems: List[Problem],
    ) -> None:
        self.saved = saved
        self.known = known
        self.targets = targets
        self.optimizer = optimizer
        self.problems = problems
        # GaLore projects moments to a low rank, so their shapes are not the parameter's.
        self.projected = {param_id for group in groups if "rank" in group for param_id in group["params"]}
        self.found_in: Dict[Any, str] = {}
        others = [key for key, kind in NAMES_OF_MANY_MEANINGS.items() if not isinstance(optimizer, kind)]
        self.elementwise = ELEMENTWISE_STATE.difference(others)
        self.listed: Dict[str, List[Any]] = defaultdict(list)
        for param_id, path in (saved.index or {}).items():
            self.listed[path].append(param_id)

    def check(self, shards: List[SavedShard]) -> None:
        """
        Args:
            shards (List[SavedShard]): The shards, each of which is opened once.
        """
        for shard in shards:
            try:
                states = shard.states()
            except UnreadableFileError as error:
                self.problems.append(Problem(str(error), True, shard.path, remedy=REWRITE))
                continue
            for param_id, state in states.items():
                self._check_id(param_id, state, shard)
            if shard.lists_every_id and self.saved.index is not None:
                for param_id in self.listed[shard.path]:
                    if param_id not in states:
                        text = "the index says that the file holds this id, but it does not"
                        self.problems.append(Problem(text, True, shard.path, param_id, remedy=REWRITE))

    def _check_id(self, param_id: Any, state: Any, shard: SavedShard) -> None:
        if isinstance(param_id, bool) or not isinstance(param_id, (int, str)):
            self.problems.append(Problem("the id is not an integer", True, shard.path, param_id))
            return
        if self.saved.index is not None and self.saved.index.get(param_id) != shard.path:
            expected = self.saved.index.get(param_id, "no file")
            text = "the file holds an id that the index does not expect there"
            self.problems.append(Problem(text, True, shard.path, param_id, None, expected, "this file", REWRITE))
        if param_id in self.found_in:
            text = "another file holds this id too: {}".format(self.found_in[param_id])
            self.problems.append(Problem(text, True, shard.path, param_id, remedy=REWRITE))
        self.found_in[param_id] = shard.path
        # Under a name, an optimizer may keep whatever it likes.
        if isinstance(param_id, int) and not isinstance(state, dict):
            text = "the state is not a mapping"
            self.problems.append(Problem(text, True, shard.path, param_id, None, "dict", type(state).__name__, REWRITE))
        elif isinstance(param_id, int) and param_id not in self.known:
            text = "no parameter group has this id, so the state belongs to another optimizer"
            self.problems.append(Problem(text, False, shard.path, param_id))
        elif param_id in self.targets:
            param, placement = self.targets[param_id]
            held = self.optimizer.state.get(param, {}) if placement.keeps_everything else {}
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    self._check_tensor(param_id, key, value, param, placement, held, shard)
                elif not placement.keeps_everything and _holds_tensor(value):
                    text = "the state is a collection of tensors, which cannot be divided among ranks"
                    self.problems.append(Problem(text, False, shard.path, param_id, key))
                else:
                    self._check_rebuilding(param_id, key, value, shard)
        elif isinstance(param_id, str) and _is_nested_too_deep(state):
            text = "the state is nested too deep, or holds itself"
            self.problems.append(Problem(text, True, shard.path, param_id))

    def _check_rebuilding(self, param_id: int, key: str, value: Any, shard: SavedShard) -> None:
        if _is_nested_too_deep(value):
            text = "the state is nested too deep, or holds itself"
            self.problems.append(Problem(text, True, shard.path, param_id, key))
            return
        try:
            _rebuilt(value)
        except Exception as error:
            text = "native loading cannot rebuild a {}: {}".format(type(value).__name__, error)
            self.problems.append(Problem(text, False, shard.path, param_id, key))

    def _check_tensor(
        self,
        param_id: int,
        key: str,
        value: torch.Tensor,
        param: torch.Tensor,
        placement: Placement,
        held: Mapping,
        shard: SavedShard,
    ) -> None:
        shape = tuple(value.shape)
        if key in AVERAGED_STATE and param_id not in self.projected:
            part = placement_of_state(placement, key)
            if part is None:
                text = "moments of rows and columns cannot be divided as the parameter is"
                self.problems.append(Problem(text, False, shard.path, param_id, key))
            elif not part.fits(shape):
                text = "the state does not have the shape of the parameter's rows or columns"
                self.problems.append(Problem(text, False, shard.path, param_id, key, part.global_shape, shape))
            return
        own = held.get(key)
        known = (
            isinstance(own, torch.Tensor) and own.shape == param.shape and (own.dim() > 0 or key in ELEMENTWISE_STATE)
        )
        # Of these optimizers the names tell enough. Any other knows best itself what it keeps under a name.
        if not isinstance(own, torch.Tensor) or type(self.optimizer).__module__.startswith(WELL_KNOWN_OPTIMIZERS):
            known = known or key in self.elementwise
        if is_divided(placement, key, value) or (placement.divides and key in self.elementwise):
            elementwise = True
        elif placement.divides or param_id in self.projected:
            elementwise = False
        else:
            elementwise = known
        if not elementwise or placement.fits(shape):
            return
        # What is divided need not be elementwise, as long as this rank's part of it is known.
        if known or not placement.divides or not placement.fits_reduced(shape):
            text = "the state does not have the parameter's shape"
            self.problems.append(Problem(text, False, shard.path, param_id, key, placement.global_shape, shape))


def _is_nested_too_deep(value: Any, depth: int = 0) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return False
    return depth == MAX_NESTING or any(_is_nested_too_deep(item, depth + 1) for item in value)


def _rebuilt(value: Any) -> Any:
    # Native loading makes containers anew, by calling their class with one iterable. Not every class takes that.
    if isinstance(value, dict):
        return {key: _rebuilt(item) for key, item in value.items()}
    if isinstance(value, (torch.Tensor, str, bytes, bytearray)) or not isinstance(value, Iterable):
        return value
    return type(value)(_rebuilt(item) for item in value)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, dict):
        return any(_holds_tensor(item) for item in value.values())
    return isinstance(value, (list, tuple, set, frozenset)) and any(_holds_tensor(item) for item in value)
