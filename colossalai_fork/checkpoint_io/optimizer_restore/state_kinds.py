"""What the name of a state tells of its shape, for the optimizers of torch and ColossalAI."""

from typing import Optional

import torch

from .placement import Placement

__all__ = ["AVERAGED_STATE", "ELEMENTWISE_STATE", "NAMES_OF_MANY_MEANINGS", "SCALAR_STATE", "placement_of_state"]

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


def placement_of_state(placement: Placement, key: str) -> Optional[Placement]:
    """
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
