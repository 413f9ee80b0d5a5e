"""Check the saved state of each parameter against the parameter."""

from collections import defaultdict
from numbers import Number
from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch

from .containers import leaves
from .destination import Destination
from .errors import Problem
from .files.saved_state import REWRITE, SavedShard, SavedState
from .files.saved_tensor import SavedTensor
from .files.sources import UnreadableFileError
from .placement import Placement
from .state_kinds import (
    AVERAGED_STATE,
    elementwise_names,
    is_scalar,
    is_tensor,
    is_well_known,
    placement_of_state,
    required_state,
)

__all__ = ["StateCheck"]


class StateCheck:
    """
    Checks the states of some shards.

    Args:
        saved (SavedState): The checkpoint.
        known (Any): Every id of the saved groups.
        targets (Dict[int, Tuple[torch.Tensor, Placement]]): The ids that this rank keeps.
        groups (List[Dict[str, Any]]): The saved groups for this rank's optimizer.
        destination (Destination): The optimizer.
        problems (List[Problem]): Whatever is wrong is added here.
    """

    def __init__(
        self,
        saved: SavedState,
        known: Any,
        targets: Dict[int, Tuple[torch.Tensor, Placement]],
        groups: List[Dict[str, Any]],
        destination: Destination,
        problems: List[Problem],
    ) -> None:
        self.saved = saved
        self.known = known
        self.targets = targets
        self.destination = destination
        self.problems = problems
        # GaLore projects moments to a low rank, so their shapes are not the parameter's.
        self.projected = {param_id for group in groups if "rank" in group for param_id in group["params"]}
        self.found_in: Dict[Any, str] = {}
        self.elementwise = elementwise_names(destination.optimizer_class)
        self.required = required_state(destination.optimizer_class)
        self.well_known = is_well_known(destination.optimizer_class)
        self.listed: Dict[str, List[Any]] = defaultdict(list)
        for param_id, path in (saved.index or {}).items():
            self.listed[path].append(param_id)

    def check(self, shards: List[SavedShard]) -> None:
        """
        Check all states in some shards.

        Args:
            shards (List[SavedShard]): The shards, each of which is opened once.
        """
        for shard in shards:
            try:
                states = shard.states()
            except UnreadableFileError as error:
                problem = Problem(str(error), True, shard.path, remedy=REWRITE, missing=error.missing)
                self.problems.append(problem)
                continue
            for param_id, state in states.items():
                _ParameterCheck(self, shard.path, param_id).check(state)
            if shard.lists_every_id and self.saved.index is not None:
                for param_id in self.listed[shard.path]:
                    if param_id not in states:
                        text = "the index says that the file holds this id, but it does not"
                        self.problems.append(Problem(text, True, shard.path, param_id, remedy=REWRITE))


class _ParameterCheck:
    """
    Checks the state of one saved id.

    Args:
        common (StateCheck): What is known of the checkpoint and of the optimizer.
        path (str): The file that holds the state.
        param_id (Any): The saved id.
    """

    __slots__ = ("common", "path", "param_id")

    def __init__(self, common: StateCheck, path: str, param_id: Any) -> None:
        self.common = common
        self.path = path
        self.param_id = param_id

    def _add(self, text: str, damaged: bool, key: Any = None, expected: Any = None, found: Any = None) -> None:
        remedy = REWRITE if damaged else None
        problem = Problem(text, damaged, self.path, self.param_id, key, expected, found, remedy)
        self.common.problems.append(problem)

    def check(self, state: Any) -> None:
        """
        Check the state of one parameter.

        Args:
            state (Any): What is saved under the id.
        """
        param_id = self.param_id
        if isinstance(param_id, bool) or not isinstance(param_id, (int, str)):
            self._add("the id is not an integer", True)
            return
        self._check_place()
        # Under a name, an optimizer may keep whatever it likes.
        if isinstance(param_id, str):
            self._check_leaves(None, state)
        elif not isinstance(state, dict):
            self._add("the state is not a mapping", True, None, "dict", type(state).__name__)
        elif param_id not in self.common.known:
            self._add("no parameter group has this id, so the state belongs to another optimizer", False)
        elif param_id in self.common.targets:
            self._check_state(state, *self.common.targets[param_id])

    def _check_place(self) -> None:
        index, found_in = self.common.saved.index, self.common.found_in
        if index is not None and index.get(self.param_id) != self.path:
            expected = index.get(self.param_id, "no file")
            self._add("the file holds an id that the index does not expect there", True, None, expected, "this file")
        if self.param_id in found_in:
            self._add("another file holds this id too: {}".format(found_in[self.param_id]), True)
        found_in[self.param_id] = self.path

    def _check_state(self, state: Dict[str, Any], param: torch.Tensor, placement: Placement) -> None:
        missing = [key for key in self.common.required if state and key not in state]
        if missing:
            text = "the state lacks what {} reads in every step: {}"
            self._add(text.format(self.common.destination.optimizer_class.__name__, ", ".join(missing)), False)
        for key, value in state.items():
            if is_tensor(value):
                refusal = _refusal_of(value)
                if refusal is not None:
                    self._add("the state cannot be loaded: {}".format(refusal), False, key)
                elif not self._is_wrong_number(key, value):
                    self._check_tensor(key, value, param, placement)
            elif not self._is_wrong_number(key, value) and not self._lacks_tensor(key, value):
                self._check_leaves(key, value, placement)

    def _is_wrong_number(self, key: Any, value: Any) -> bool:
        if key != "step" or not self.common.well_known:
            return False
        is_number = value.numel() == 1 if is_tensor(value) else isinstance(value, Number)
        if not is_number or isinstance(value, bool):
            found = tuple(value.shape) if is_tensor(value) else type(value).__name__
            self._add("the state is not one number", False, key, "a number", found)
            return True
        return False

    def _lacks_tensor(self, key: Any, value: Any) -> bool:
        common = self.common
        if not common.well_known or key not in common.elementwise or (value is None and key not in common.required):
            return False
        self._add("the state is not a tensor", False, key, "a tensor", type(value).__name__)
        return True

    def _check_leaves(self, key: Any, value: Any, placement: Optional[Placement] = None) -> None:
        try:
            inside = list(leaves(value))
            if key is not None:
                _rebuilt(value)
        except ValueError as error:
            self._add("the state cannot be loaded: {}".format(error), True, key)
            return
        except Exception as error:
            text = "native loading cannot rebuild a {}: {}".format(type(value).__name__, error)
            self._add(text, False, key)
            return
        refusals = [_refusal_of(leaf) for leaf in inside if is_tensor(leaf)]
        for refusal in filter(None, refusals):
            self._add("the state cannot be loaded: {}".format(refusal), False, key)
        if refusals and placement is not None and not placement.keeps_everything:
            self._add("the state is a collection of tensors, which cannot be divided among ranks", False, key)

    def _check_tensor(self, key: str, value: Any, param: torch.Tensor, placement: Placement) -> None:
        shape = tuple(value.shape)
        projected = self.param_id in self.common.projected
        if key in AVERAGED_STATE and not projected:
            part = placement_of_state(placement, key)
            if part is None:
                self._add("moments of rows and columns cannot be divided as the parameter is", False, key)
            elif not part.fits(shape):
                text = "the state does not have the shape of the parameter's rows or columns"
                self._add(text, False, key, part.global_shape, shape)
            return
        if placement.fits(shape):
            return
        known = self._is_elementwise(key, param, placement)
        divided = placement.divides and not is_scalar(key, value, placement.global_shape)
        if placement.divides:
            # What is divided need not be elementwise, as long as this rank's part of it is known.
            wrong = (divided or key in self.common.elementwise) and (known or not placement.fits_reduced(shape))
        else:
            wrong = known and not projected
        if wrong:
            self._add("the state does not have the parameter's shape", False, key, placement.global_shape, shape)

    def _is_elementwise(self, key: str, param: torch.Tensor, placement: Placement) -> bool:
        by_name = key in self.common.elementwise
        own = self.common.destination.state_of(param).get(key) if placement.keeps_everything else None
        if not isinstance(own, torch.Tensor):
            return by_name
        # Of these optimizers the names tell enough. Any other knows best itself what it keeps under a name.
        like_param = own.shape == param.shape and (own.dim() > 0 or by_name)
        return like_param or (self.common.well_known and by_name)


def _refusal_of(value: Any) -> Optional[str]:
    if isinstance(value, SavedTensor):
        return value.refusal
    if value.is_meta:
        return "it is on the meta device, and has no data"
    return "it is quantised" if value.is_quantized else None


def _rebuilt(value: Any) -> Any:
    # Native loading makes containers anew, by calling their class with one iterable. Not every class takes that.
    if isinstance(value, dict):
        return {key: _rebuilt(item) for key, item in value.items()}
    if is_tensor(value) or isinstance(value, (str, bytes, bytearray)) or not isinstance(value, Iterable):
        return value
    return type(value)(_rebuilt(item) for item in value)
