"""Models whose parameters FSDP flattens alone or together, as a case wants it."""

import dataclasses

import torch

from .subjects import Shape


class Unit(torch.nn.Module):
    """A module of a few parameters: FSDP wraps modules, and flattens what a module has into one.

    Args:
        values (List[torch.Tensor]): the parameters.
    """

    def __init__(self, values: list[torch.Tensor]) -> None:
        super().__init__()
        self.values = torch.nn.ParameterList(torch.nn.Parameter(each) for each in values)

    def forward(self, coefficients: list[torch.Tensor | None]) -> torch.Tensor:
        """The module's part of the loss.

        Args:
            coefficients (List[Optional[torch.Tensor]]): for each parameter, of its shape; None if it takes no part.

        Returns:
            torch.Tensor: a number.
        """
        taking_part = [(value, factors) for value, factors in zip(self.values, coefficients) if factors is not None]
        return sum(
            (value * factors.to(value.device)).sum() + value.square().sum() / 2 for value, factors in taking_part
        )


class Units(torch.nn.Module):
    """Parameters of given shapes, dealt to modules, and a loss in which each takes part on its own.

    Args:
        shapes (Tuple[Shape, ...]): the shapes.
        units (Tuple[Tuple[int, ...], ...]): ids of the parameters of each module, in their order.
        seed (int): seed of their values.
        dtype (torch.dtype): their dtype.
    """

    def __init__(
        self,
        shapes: tuple[Shape, ...],
        units: tuple[tuple[int, ...], ...],
        seed: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        values = [torch.randn(each, generator=generator).to(dtype) for each in shapes]
        self.units = torch.nn.ModuleList(Unit([values[each] for each in ids]) for ids in units)
        self.shapes, self.ids = shapes, units

    def forward(self, seed: int, ids: tuple[int, ...] | None = None) -> torch.Tensor:
        """A loss.

        Args:
            seed (int): seed of its coefficients.
            ids (Optional[Tuple[int, ...]]): parameters that take part, None for all.

        Returns:
            torch.Tensor: a number.
        """
        generator = torch.Generator().manual_seed(seed)
        coefficients = [torch.randn(shape, generator=generator) for shape in self.shapes]
        loss = torch.zeros(())
        for unit, held in zip(self.units, self.ids):
            if ids is None or set(held) & set(ids):
                loss = loss + unit([coefficients[each] if ids is None or each in ids else None for each in held])
        return loss


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """How FSDP is put around a model.

    Attributes:
        units (Optional[Tuple[Tuple[int, ...], ...]]): ids that are flattened together; None for each on its own.
        by_plugin (bool): whether the plugin does it, which makes one group of all parameters.
        keeps_originals (bool): whether the optimizer is given the model's parameters and not the flat ones.
        ignored (Tuple[int, ...]): units that FSDP leaves alone.
    """

    units: tuple[tuple[int, ...], ...] | None = None
    by_plugin: bool = False
    keeps_originals: bool = False
    ignored: tuple[int, ...] = ()
