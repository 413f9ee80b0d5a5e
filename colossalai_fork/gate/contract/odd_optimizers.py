"""Optimizers that keep state no torch optimizer keeps, or load it their own way. All of them are legal."""

import weakref

import torch


class Momentum(torch.optim.Optimizer):
    """Gradient descent with a momentum for each parameter: the base of the others.

    Args:
        params (Iterable): parameters or groups.
        lr (float): the learning rate.
    """

    def __init__(self, params, lr=0.01, **defaults):
        super().__init__(params, {"lr": lr, **defaults})

    def first_state(self, parameter):
        """State of a parameter before its first step.

        Args:
            parameter (torch.Tensor): the parameter.

        Returns:
            Dict[str, object]: the state.
        """
        return {"momentum": torch.zeros_like(parameter)}

    @torch.no_grad()
    def step(self, closure=None):
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

    def after_step(self, parameter, state):
        """Update the rest of a parameter's state.

        Args:
            parameter (torch.Tensor): the parameter.
            state (Dict[str, object]): its state.
        """


class EveryKindOfState(Momentum):
    """Keeps integers, flags, double precision, nothing, numbers and text beside its momentum."""

    def first_state(self, parameter):
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

    def after_step(self, parameter, state):
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

    def first_state(self, parameter):
        if parameter.dim() < 2:
            return {"exp_avg_sq": torch.zeros_like(parameter), **super().first_state(parameter)}
        shape = parameter.shape
        return {
            "exp_avg_sq_row": parameter.new_zeros(shape[:-1]),
            "exp_avg_sq_col": parameter.new_zeros(shape[:-2] + shape[-1:]),
            **super().first_state(parameter),
        }

    def after_step(self, parameter, state):
        for number, key in enumerate(("exp_avg_sq_row", "exp_avg_sq_col")):
            if key in state:
                count = state[key].numel()
                state[key] += torch.arange(1.0 + number, count + 1 + number).reshape(state[key].shape).to(state[key])


class LoadsItsOwnWay(Momentum):
    """Does something of its own in ``load_state_dict`` and ``__setstate__``, which loading must not bypass."""

    def load_state_dict(self, state_dict):
        # Whoever overrides this may do with the states what dictionaries allow.
        count = len(state_dict["state"])
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state["loaded by the subclass"] = count

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("filled by __setstate__", 1)


class FailsWhileLoading(Momentum):
    """Raises after it has loaded, where :attr:`fails` is set, as a full device or a dying disk would."""

    fails = False

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        if self.fails:
            raise RuntimeError("the device is out of memory")


class WatchesItsState(Momentum):
    """Looks, as native loading begins, which tensors of the state before are still alive."""

    def watch(self):
        """Remember the present state, without keeping it."""
        self.watched = [weakref.ref(state["momentum"]) for state in self.state.values()]
        self.still_alive = None

    def load_state_dict(self, state_dict):
        self.still_alive = sum(reference() is not None for reference in self.watched)
        super().load_state_dict(state_dict)


class ReadsDefaults(torch.optim.SGD):
    """SGD under another name, to have a class that ColossalAI has never heard of."""
