"""The models and optimizers that cases are run on."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterable

import torch

from . import odd_optimizers

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to build.

    Attributes:
        optimizer (str): a class of torch.optim or of :mod:`odd_optimizers`, or one that the configuration knows.
        options (Dict[str, Any]): its keyword arguments.
        shapes (Tuple[Shape, ...]): shape of each parameter; the position is the parameter's id.
        groups (Tuple[Tuple[int, ...], ...]): ids in each parameter group.
        rates (Tuple[float, ...]): learning rate of each group.
        named (bool): whether the optimizer is given the names of the parameters.
        dtype (torch.dtype): dtype of the parameters before a plugin changes it.
    """

    optimizer: str = "Adam"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    shapes: tuple[Shape, ...] = ((4, 3), (5,), (2, 3), (7,))
    groups: tuple[tuple[int, ...], ...] = ((0, 1), (2, 3))
    rates: tuple[float, ...] = (0.01, 0.02)
    named: bool = False
    dtype: torch.dtype = torch.float32

    def with_rates(self, factor: float) -> Recipe:
        """The same recipe with other learning rates.

        Args:
            factor (float): what to multiply them by.

        Returns:
            Recipe: the recipe.
        """
        return dataclasses.replace(self, rates=tuple(rate * factor for rate in self.rates))


@dataclasses.dataclass
class Subject:
    """A model and its optimizer on this rank, as the configuration's plugin made them.

    Attributes:
        recipe (Recipe): what they were made from.
        model (torch.nn.Module): the model; its parameters, and :attr:`masters`, must not change when state is loaded.
        optimizer (object): what ``load_optimizer`` is given.
        inner (torch.optim.Optimizer): the torch optimizer that holds the state.
        shapes (Dict[int, Shape]): global shape of each parameter by global id.
        groups (Tuple[Tuple[int, ...], ...]): global ids in each group.
        train (Callable[[int, Optional[Tuple[int, ...]]], None]): one training step; arguments are a seed and the ids
            that take part, None for all. Must be called on every rank.
        model_io (object): what saves and loads the model, or None where that is not part of the configuration.
    """

    recipe: Recipe
    model: torch.nn.Module
    optimizer: Any
    inner: torch.optim.Optimizer
    shapes: dict[int, Shape]
    groups: tuple[tuple[int, ...], ...]
    train: Callable[[int, tuple[int, ...] | None], None]
    model_io: Any = None

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The tensors that the torch optimizer steps: the model's parameters, or this rank's master copies."""
        return [parameter for group in self.inner.param_groups for parameter in group["params"]]

    def weights(self) -> dict[str, object]:
        """Copy all that loading optimizer state must leave alone.

        Returns:
            Dict[str, object]: parameters, master parameters and which of them are trained.
        """
        return {
            "model parameters": {name: value.detach().clone() for name, value in self.model.named_parameters()},
            "requires_grad": {name: value.requires_grad for name, value in self.model.named_parameters()},
            "stepped parameters": [parameter.detach().clone() for parameter in self.parameters],
        }


class Weights(torch.nn.Module):
    """Parameters of given shapes, and a loss in which each takes part on its own.

    Args:
        shapes (Tuple[Shape, ...]): the shapes.
        seed (int): seed of their values.
        dtype (torch.dtype): their dtype.
    """

    def __init__(self, shapes: tuple[Shape, ...], seed: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        for number, shape in enumerate(shapes):
            values = torch.randn(shape, generator=generator).to(dtype)
            self.register_parameter(f"weight_{number}", torch.nn.Parameter(values))

    def forward(self, seed: int, ids: tuple[int, ...] | None = None) -> torch.Tensor:
        """A loss.

        Args:
            seed (int): seed of its coefficients.
            ids (Optional[Tuple[int, ...]]): parameters that take part, None for all.

        Returns:
            torch.Tensor: a number.
        """
        generator = torch.Generator().manual_seed(seed)
        loss = torch.zeros(())
        for number, weight in enumerate(self.parameters()):
            coefficients = torch.randn(weight.shape, generator=generator)
            if ids is None or number in ids:
                value = weight.float()
                loss = loss + (value * coefficients.to(value.device)).sum() + value.square().sum() / 2
        return loss


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """Find an optimizer class.

    Args:
        name (str): its name; ColossalAI's own after "colossalai." where torch may have one of that name.

    Returns:
        type: a class of this kit, of torch.optim or of ColossalAI.
    """
    if hasattr(odd_optimizers, name):
        return getattr(odd_optimizers, name)
    if hasattr(torch.optim, name):
        return getattr(torch.optim, name)
    import colossalai.nn.optimizer

    return getattr(colossalai.nn.optimizer, name.removeprefix("colossalai."))


def make_optimizer(recipe: Recipe, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Make the optimizer of a recipe.

    Args:
        recipe (Recipe): the recipe.
        parameters (List[torch.nn.Parameter]): by id.

    Returns:
        torch.optim.Optimizer: the optimizer.
    """
    groups = []
    for ids, rate in zip(recipe.groups, recipe.rates):
        members = [(f"weight_{each}", parameters[each]) if recipe.named else parameters[each] for each in ids]
        groups.append({"params": members, "lr": rate})
    return optimizer_class(recipe.optimizer)(groups, **{"lr": recipe.rates[0], **recipe.options})


def saved_natively(
    recipe: Recipe, ids: tuple[int, ...] | None = None, seed: int = 11, steps: int = 3, dtype: torch.dtype | None = None
) -> dict[str, Any]:
    """Train a plain torch optimizer on whole parameters, and save it.

    Args:
        recipe (Recipe): what to make.
        ids (Optional[Tuple[int, ...]]): parameters that get gradients, None for all.
        seed (int): seed of the gradients.
        steps (int): number of steps.
        dtype (Optional[torch.dtype]): dtype of the parameters, if not the recipe's.

    Returns:
        dict: the state dict, with global ids and global shapes.
    """
    generator = torch.Generator().manual_seed(seed)
    dtype = dtype or recipe.dtype
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in recipe.shapes]
    optimizer = make_optimizer(recipe, parameters)
    for _ in range(steps):
        give_gradients([p for number, p in enumerate(parameters) if ids is None or number in ids], generator)
        optimizer.step(*closure_for(optimizer))
    return optimizer.state_dict()


def give_gradients(parameters: Iterable[torch.Tensor], generator: torch.Generator) -> None:
    """Set the gradients of parameters to random values.

    Args:
        parameters (Iterable[torch.Tensor]): the parameters.
        generator (torch.Generator): where the values come from.
    """
    for parameter in parameters:
        values = torch.randn(parameter.shape, generator=generator)
        parameter.grad = values.to(device=parameter.device, dtype=parameter.dtype)


def closure_for(optimizer: torch.optim.Optimizer) -> tuple[Callable[[], torch.Tensor], ...]:
    """The arguments of ``step`` for an optimizer that evaluates the loss itself.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer.

    Returns:
        tuple: a closure, for LBFGS.
    """
    return (lambda: torch.ones(()),) if isinstance(optimizer, torch.optim.LBFGS) else ()
