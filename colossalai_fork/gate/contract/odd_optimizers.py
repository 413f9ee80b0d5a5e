"""Optimizers that keep state no torch optimizer keeps, or load it their own way. All of them are legal."""

import weakref
from typing import Any, Callable, Iterable

import torch


class Momentum(torch.optim.Optimizer):
    """Gradient descent with a momentum for each parameter: the base of the others.

    Args:
        params (Iterable): parameters or groups.
        lr (float): the learning rate.
    """

    def __init__(
        self, params: Iterable[torch.Tensor] | Iterable[dict[str, Any]], lr: float = 0.01, **defaults: Any
    ) -> None:
        super().__init__(params, {"lr": lr, **defaults})

    def first_state(self, parameter: torch.Tensor) -> dict[str, object]:
        """State of a parameter before its first step.

        Args:
            parameter (torch.Tensor): the parameter.

        Returns:
            Dict[str, object]: the state.
        """
        return {"momentum": torch.zeros_like(parameter)}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        """Take a step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if not self.state[parameter]:
                        self.state[parameter].update(self.first_state(parameter))
                    state = self.state[parameter]
                    state["momentum"].mul_(0.9).add_(parameter.grad)
                    parameter.sub_(group["lr"] * state["momentum"])
                    self.after_step(parameter, state)

    def after_step(self, parameter: torch.Tensor, state: dict[str, object]) -> None:
        """Update the rest of a parameter's state.

        Args:
            parameter (torch.Tensor): the parameter.
            state (Dict[str, object]): its state.
        """


class EveryKindOfState(Momentum):
    """Keeps integers, flags, double precision, nothing, numbers and text beside its momentum."""

    def first_state(self, parameter: torch.Tensor) -> dict[str, object]:
        return {
            "momentum": torch.zeros_like(parameter),
            "signs": torch.zeros(parameter.shape, dtype=torch.bool, device=parameter.device),
            "visits": torch.zeros(parameter.shape, dtype=torch.int64, device=parameter.device),
            "exact": torch.zeros(parameter.shape, dtype=torch.float64, device=parameter.device),
            "count": torch.zeros((), dtype=torch.int64),
            "scale": torch.ones((), dtype=torch.float32),
            "calls": 0,
            "rate": 0.5,
            "absent": None,
            "flag": True,
        }

    def after_step(self, parameter: torch.Tensor, state: dict[str, object]) -> None:
        state["signs"] = parameter.grad > 0
        # Elements without a gradient keep zeros: ZeRO pads slices with such elements.
        state["visits"] += state["signs"].long() * 2
        state["exact"] += parameter.grad.double() / 3
        state["count"] += 1
        state["scale"] *= 0.99
        state["calls"] += 1
        state["rate"] *= 0.9


class RowsAndColumns(Momentum):
    """Keeps a number for each row and each column, under the names that ColossalAI's Adafactor and CAME give them.

    They are averages over all ranks where tensor parallelism cuts, so here they do not depend on a rank's gradients.
    """

    def first_state(self, parameter: torch.Tensor) -> dict[str, object]:
        if parameter.dim() < 2:
            return {"exp_avg_sq": torch.zeros_like(parameter), **super().first_state(parameter)}
        shape = parameter.shape
        return {
            "exp_avg_sq_row": parameter.new_zeros(shape[:-1]),
            "exp_avg_sq_col": parameter.new_zeros(shape[:-2] + shape[-1:]),
            **super().first_state(parameter),
        }

    def after_step(self, parameter: torch.Tensor, state: dict[str, object]) -> None:
        for number, key in enumerate(("exp_avg_sq_row", "exp_avg_sq_col")):
            if key in state:
                count = state[key].numel()
                state[key] += torch.arange(1.0 + number, count + 1 + number).reshape(state[key].shape).to(state[key])


class LoadsItsOwnWay(Momentum):
    """Does something of its own in ``load_state_dict`` and ``__setstate__``, which loading must not bypass."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # Whoever overrides this may do with the states what dictionaries allow.
        count = len(state_dict["state"])
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state["loaded by the subclass"] = count

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("filled by __setstate__", 1)


class FailsWhileLoading(Momentum):
    """Raises :attr:`fails` after it has loaded, as a full device, a dying disk or a person would make it."""

    fails = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if self.fails is not None:
            raise self.fails


class WatchesItsState(Momentum):
    """Looks, as native loading begins, which tensors of the state before are still alive."""

    def watch(self) -> None:
        """Remember the present state, without keeping it."""
        self.watched = [weakref.ref(state["momentum"]) for state in self.state.values()]
        self.still_alive = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.still_alive = sum(reference() is not None for reference in self.watched)
        super().load_state_dict(state_dict)


class KeepsItsOwnLayout(Momentum):
    """Has a state dict of its own making: a list of what it keeps, and a number."""

    count = 0

    def state_dict(self) -> dict[str, Any]:
        momenta = [state["momentum"] for state in self.state.values()]
        return {"format": "own", "momenta": momenta, "rates": [group["lr"] for group in self.param_groups], "count": 7}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state.clear()
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for group, rate in zip(self.param_groups, state_dict["rates"]):
            group["lr"] = rate
        for parameter, momentum in zip(parameters, state_dict["momenta"]):
            if momentum.shape != parameter.shape:
                raise ValueError(f"a momentum of shape {tuple(momentum.shape)} belongs to no parameter")
            self.state[parameter] = {"momentum": momentum.clone()}
        self.count = state_dict["count"]


class SavesMore(Momentum):
    """Has something beside state and groups in its state dict."""

    seen = None

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "seen": {"batches": 12, "scale": torch.tensor([0.5, 2.0])}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seen = state_dict["seen"]
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})


class ReadsDefaults(torch.optim.SGD):
    """SGD under another name, to have a class that ColossalAI has never heard of."""
