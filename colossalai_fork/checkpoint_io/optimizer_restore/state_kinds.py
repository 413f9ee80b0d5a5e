"""What the name of a state tells of its shape, for the optimizers of torch and ColossalAI."""

from typing import Any, FrozenSet, Optional, Sequence, Tuple

import torch

from .files.saved_tensor import SavedTensor
from .placement import Placement

__all__ = [
    "AVERAGED_STATE",
    "elementwise_names",
    "is_scalar",
    "is_tensor",
    "is_well_known",
    "placement_of_state",
    "required_state",
]

WELL_KNOWN_OPTIMIZERS = ("torch.optim.", "colossalai.nn.optimizer.")

# One number for each element of the parameter. State of other names can have any shape: history vectors, quantisation
# tables.
ELEMENTWISE_STATE = frozenset(
    (
        "acc_delta",
        "ax",
        "exp_avg",
        "exp_avg_sq",
        "exp_inf",
        "grad_avg",
        "max_exp_avg_sq",
        "momentum_buffer",
        "prev",
        "square_avg",
        "step_size",
        "sum",
    )
)
# Those that another optimizer than torch's own may well give to something else.
NAMES_OF_MANY_MEANINGS = {
    "ax": torch.optim.ASGD,
    "prev": torch.optim.Rprop,
    "step_size": torch.optim.Rprop,
    "sum": torch.optim.Adagrad,
}
# One number for the whole parameter, even if the parameter itself is a single number.
SCALAR_STATE = frozenset(("step", "mu_product", "mu", "eta"))
# Second moments of rows and columns, by the dimension that they are averaged over.
AVERAGED_STATE = {"exp_avg_sq_row": -1, "exp_avg_sq_col": -2, "exp_avg_res_row": -1, "exp_avg_res_col": -2}

_OF_ADAM = ("step", "exp_avg", "exp_avg_sq")
# What an entry that is not empty must hold, because a step, or loading, reads it without asking whether it is there.
REQUIRED_STATE = {
    "Adadelta": ("step", "square_avg", "acc_delta"),
    "Adagrad": ("step", "sum"),
    "Adam": _OF_ADAM,
    "AdamW": _OF_ADAM,
    "Adamax": ("step", "exp_avg", "exp_inf"),
    "ASGD": ("step", "eta", "mu", "ax"),
    "CPUAdam": _OF_ADAM,
    "FusedAdam": ("exp_avg", "exp_avg_sq"),
    "HybridAdam": _OF_ADAM,
    "Lamb": _OF_ADAM,
    "NAdam": _OF_ADAM + ("mu_product",),
    "RAdam": _OF_ADAM,
    "RMSprop": ("step", "square_avg"),
    "Rprop": ("step", "prev", "step_size"),
    "SparseAdam": _OF_ADAM,
}


def is_well_known(optimizer_class: type) -> bool:
    """
    Tell whether the names of an optimizer's state are known.

    Args:
        optimizer_class (type): The class of an optimizer.

    Returns:
        bool: Whether it is one of torch's or ColossalAI's own, so that the names of its state tell their meaning.
    """
    return optimizer_class.__module__.startswith(WELL_KNOWN_OPTIMIZERS)


def required_state(optimizer_class: type) -> Tuple[str, ...]:
    """
    Name the state without which an optimizer cannot step.

    Args:
        optimizer_class (type): The class of an optimizer.

    Returns:
        Tuple[str, ...]: The names that the state of a parameter has, if it has any; empty if nothing is known of them.
    """
    return REQUIRED_STATE.get(optimizer_class.__name__, ()) if is_well_known(optimizer_class) else ()


def elementwise_names(optimizer_class: type) -> FrozenSet[str]:
    """
    Name the state that has the shape of the parameter.

    Args:
        optimizer_class (type): The class of an optimizer.

    Returns:
        FrozenSet[str]: The names under which it keeps one number for each element of the parameter.
    """
    others = [key for key, kind in NAMES_OF_MANY_MEANINGS.items() if not issubclass(optimizer_class, kind)]
    return ELEMENTWISE_STATE.difference(others)


def is_tensor(value: Any) -> bool:
    """
    Tell whether a value is a tensor.

    Args:
        value (Any): A value of a state.

    Returns:
        bool: Whether it is a tensor, in memory or in a file.
    """
    return isinstance(value, (SavedTensor, torch.Tensor))


def is_scalar(key: Any, value: Any, parameter_shape: Optional[Sequence[int]] = None) -> bool:
    """
    Tell state that belongs to the parameter as a whole, and that every rank keeps, from state that ranks divide.

    Args:
        key (Any): The state's name.
        value (Any): The state.
        parameter_shape (Sequence[int], optional): The shape of the whole parameter. A parameter that is a single number has
            elementwise state of no dimension, too.

    Returns:
        bool: Whether it is one number, or no tensor at all.
    """
    if key == "step" or not is_tensor(value):
        return True
    of_number = parameter_shape is not None and tuple(parameter_shape) == ()
    return value.dim() == 0 and (not of_number or key in SCALAR_STATE)


def placement_of_state(placement: Placement, key: str) -> Optional[Placement]:
    """
    Give the placement of one kind of state of a parameter.

    Args:
        placement (Placement): The part of a parameter that this rank keeps.
        key (str): The name of a state of it.

    Returns:
        Optional[Placement]: The part of that state that this rank keeps; None if there is no such part.
    """
    dims = len(placement.global_shape)
    if key not in AVERAGED_STATE or dims < 2:
        return placement
    return placement.averaged(AVERAGED_STATE[key] % dims)
