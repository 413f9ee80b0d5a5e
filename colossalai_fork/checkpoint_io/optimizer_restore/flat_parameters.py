"""What FSDP has made its flat parameters of, and which saved state one flat parameter can have."""

from itertools import chain
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.distributed.fsdp._common_utils import _get_param_to_fqns
from torch.distributed.fsdp._optim_utils import _get_fqn_to_fsdp_param_info
from torch.optim import Optimizer

from .errors import Problem
from .placement import Shape
from .state_kinds import is_scalar, is_tensor

__all__ = ["FlatParameters", "OriginalParameter", "original_parameters"]

# Each batch makes FSDP walk over the whole model, so there must not be too many of them.
MAX_BATCHES = 32


class OriginalParameter(NamedTuple):
    """
    A parameter as the model had it before FSDP.

    Args:
        name (str): Its name.
        shape (Shape): Its shape.
        dtype (torch.dtype): The dtype of the flat parameter that it is a part of.
    """

    name: str
    shape: Shape
    dtype: torch.dtype


def original_parameters(optimizer: Optimizer, model: torch.nn.Module) -> List[List[List[OriginalParameter]]]:
    """
    Find out which original parameters make up each flat one.

    Args:
        optimizer (Optimizer): An optimizer of flat parameters.
        model (torch.nn.Module): The FSDP module.

    Returns:
        List[List[List[OriginalParameter]]]: For each group, for each of its parameters, what it was made of.
    """
    names, infos = _get_param_to_fqns(model), _get_fqn_to_fsdp_param_info(model)

    def original(param: torch.Tensor, name: str) -> OriginalParameter:
        info = infos.get(name)
        # FSDP leaves the parameters of ignored modules alone.
        shape = param.shape if info is None else info.handle.flat_param._shapes[info.param_indices[name]]
        return OriginalParameter(name, tuple(shape), param.dtype)

    return [
        [[original(param, name) for name in names[param]] for param in group["params"]]
        for group in optimizer.param_groups
    ]


class FlatParameters:
    """
    The parameters of an optimizer of flat ones, by what they were made of.

    Args:
        originals (List[List[List[OriginalParameter]]]): For each group, for each of its parameters, what it was made of.
    """

    def __init__(self, originals: List[List[List[OriginalParameter]]]) -> None:
        self._originals = originals
        self.dtypes: Dict[Any, torch.dtype] = {each.name: each.dtype for each in chain(*chain(*originals))}

    def placeholders(self) -> List[List[torch.Tensor]]:
        """
        Make stand-ins for the original parameters.

        Returns:
            List[List[torch.Tensor]]: For each group a tensor for each original parameter, without memory.
        """
        return [
            [torch.empty(each.shape, dtype=each.dtype, device="meta") for each in chain(*group)]
            for group in self._originals
        ]

    def names_by_id(self, groups: List[Dict[str, Any]]) -> Dict[int, str]:
        """
        Map saved ids to names of original parameters.

        Args:
            groups (List[Dict[str, Any]]): Saved groups that fit.

        Returns:
            Dict[int, str]: The name of the original parameter that each saved id stands for.
        """
        return {
            param_id: each.name
            for group, originals in zip(groups, self._originals)
            for param_id, each in zip(group["params"], chain(*originals))
        }

    def check(self, groups: List[Dict[str, Any]], states: Dict[Any, Any], source: str, problems: List[Problem]) -> None:
        """
        Check that parameters which share a flat one have state that one entry can hold.

        Args:
            groups (List[Dict[str, Any]]): Saved groups that fit.
            states (Dict[Any, Any]): The saved states by parameter name.
            source (str): What to call the checkpoint in messages.
            problems (List[Problem]): Whatever does not fit is added here.
        """
        for group, originals in zip(groups, self._originals):
            ids = iter(group["params"])
            for made_of in originals:
                _check_shared([(next(ids), states.get(each.name, {})) for each in made_of], source, problems)

    def batches(self, states: Dict[Any, Any]) -> List[List[Any]]:
        """
        Divide the saved states into batches that can be flattened one after another.

        Args:
            states (Dict[Any, Any]): The saved states by parameter name, and those of the optimizer as a whole.

        Returns:
            List[List[Any]]: The keys of each batch. None has a part of a flat parameter, and none much more than one.
        """
        flat = [[each.name for each in made_of if each.name in states] for made_of in chain(*self._originals)]
        named = set(chain(*flat))
        flat.append([key for key in states if key not in named])
        sizes = [sum(_size(states[name]) for name in names) for names in flat]
        enough = max(max(sizes), sum(sizes) // MAX_BATCHES)
        batches: List[List[Any]] = []
        room: Optional[int] = None
        for names, size in zip(flat, sizes):
            if names and (room is None or size > room):
                batches.append([])
                room = enough
            if names:
                batches[-1].extend(names)
                room -= size
        return batches


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return value.numel() * value.dtype.itemsize if is_tensor(value) else 0


def _agree(key: str, value: Any, other: Any) -> bool:
    if not (is_scalar(key, value) and is_scalar(key, other)):
        return not is_scalar(key, value) and not is_scalar(key, other)
    if is_tensor(value) and is_tensor(other) and value.dtype != other.dtype:
        return False
    return type(value) is type(other) and bool(value == other)


def _check_shared(states: List[Tuple[int, Dict[str, Any]]], source: str, problems: List[Problem]) -> None:
    remedy = "Wrap the model as it was for saving, so that these parameters are flattened apart"
    first_id, first = states[0]
    for param_id, state in states[1:]:
        if set(state) != set(first):
            text = "FSDP has flattened it together with parameter id {!r}, whose state has other keys".format(first_id)
            problems.append(Problem(text, False, source, param_id, None, sorted(first), sorted(state), remedy))
            continue
        for key, value in state.items():
            if not _agree(key, value, first[key]):
                text = "FSDP has flattened it together with parameter id {!r}, which has another value".format(first_id)
                problems.append(Problem(text, False, source, param_id, key, repr(first[key]), repr(value), remedy))
