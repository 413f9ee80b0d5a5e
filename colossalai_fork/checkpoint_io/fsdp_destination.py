"""What a checkpoint of the model's parameters has to fit, where FSDP has flattened them into fewer, larger ones."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.distributed.fsdp._common_utils import _get_param_to_fqns
from torch.distributed.fsdp._optim_utils import _get_fqn_to_fsdp_param_info
from torch.optim import Optimizer

from .destination import Destination
from .errors import Problem
from .placement import Placement, Replicated, Shape

__all__ = ["FlattenedDestination"]


class OriginalParameter(NamedTuple):
    """
    A parameter as the model had it before FSDP.

    Args:
        name (str): Its name.
        shape (Shape): Its shape.
    """

    name: str
    shape: Shape


class ToBeFlattened(Replicated):
    """The whole, which FSDP flattens together with others: all that is not one number must have the parameter's shape."""

    divides = True


class FlattenedDestination(Destination):
    """
    An optimizer of flat parameters, seen as one of the parameters that they were made of. Nothing is loaded through it.

    Args:
        optimizer (Optimizer): The torch optimizer.
        model (torch.nn.Module): The FSDP module.
    """

    by_position = False

    def __init__(self, optimizer: Optimizer, model: torch.nn.Module) -> None:
        names, infos = _get_param_to_fqns(model), _get_fqn_to_fsdp_param_info(model)

        def original(param: torch.Tensor, name: str) -> OriginalParameter:
            info = infos.get(name)
            # FSDP leaves the parameters of ignored modules alone.
            shape = param.shape if info is None else info.handle.flat_param._shapes[info.param_indices[name]]
            return OriginalParameter(name, tuple(shape))

        # For each group, for each of the optimizer's parameters, what it was made of.
        self._originals: List[List[List[OriginalParameter]]] = [
            [[original(param, name) for name in names[param]] for param in group["params"]]
            for group in optimizer.param_groups
        ]
        super().__init__(self._unflattened(optimizer))

    def _unflattened(self, optimizer: Optimizer) -> Optimizer:
        # Of the same class, so that validation can ask it what its groups need.
        unflattened = object.__new__(type(optimizer))
        groups = []
        for group, originals in zip(optimizer.param_groups, self._originals):
            params = [
                torch.empty(each.shape, dtype=param.dtype, device="meta")
                for param, made_of in zip(group["params"], originals)
                for each in made_of
            ]
            groups.append(dict(group, params=params))
        unflattened.__dict__.update(state={}, param_groups=groups, defaults=optimizer.defaults)
        return unflattened

    def placement(self, param: torch.Tensor) -> Placement:
        """
        Args:
            param (torch.Tensor): One of the parameters that flat ones were made of.

        Returns:
            Placement: All of its state.
        """
        return ToBeFlattened(param.shape)

    def names_by_id(self, groups: List[Dict[str, Any]]) -> Dict[int, str]:
        """
        Args:
            groups (List[Dict[str, Any]]): Saved groups that fit.

        Returns:
            Dict[int, str]: The name of the model's parameter that each saved id stands for.
        """
        return {
            param_id: original.name
            for group, originals in zip(groups, self._originals)
            for param_id, original in zip(group["params"], (each for made_of in originals for each in made_of))
        }

    def cast(self, param: Optional[torch.Tensor], state: Dict[str, Any]) -> Dict[str, Any]:
        """
        Give state the dtype that native loading would give it, since FSDP flattens tensors of one dtype only.

        Args:
            param (torch.Tensor, optional): The parameter; None for state of the optimizer as a whole.
            state (Dict[str, Any]): Its saved state. Not changed.

        Returns:
            Dict[str, Any]: The state.
        """
        if param is None or not param.is_floating_point():
            return state
        return {key: value.to(param.dtype) if _is_elementwise(value) else value for key, value in state.items()}

    def check_flat_parameters(
        self, groups: List[Dict[str, Any]], states: Dict[Any, Any], source: str, problems: List[Problem]
    ) -> None:
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
                with_ids = [(next(ids), states.get(original.name, {})) for original in made_of]
                _check_shared(with_ids, source, problems)


def _is_elementwise(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _agree(value: Any, other: Any) -> bool:
    if _is_elementwise(value) or _is_elementwise(other):
        return _is_elementwise(value) and _is_elementwise(other) and value.dtype == other.dtype
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor) and value.dtype != other.dtype:
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
            other = first[key]
            if not _agree(value, other):
                text = "FSDP has flattened it together with parameter id {!r}, which has another value".format(first_id)
                problems.append(Problem(text, False, source, param_id, key, repr(other), repr(value), remedy))
