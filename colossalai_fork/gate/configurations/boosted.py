"""How ColossalAI's plugins make models and optimizers of a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..contract import OptimizerLoadContract
from ..contract.subjects import Recipe, Subject, Weights, make_optimizer

if TYPE_CHECKING:
    from colossalai.booster.plugin import Plugin
    from colossalai.checkpoint_io import CheckpointIO

#: State that is one number for a parameter, whatever the parameter's shape.
SCALARS = ("step", "mu_product", "mu", "eta", "count", "scale")


class BoosterContract(OptimizerLoadContract):
    """A configuration that a Booster plugin makes."""

    distributed = True
    _plugins = {}

    def plugin(self) -> Plugin:
        """Make the plugin.

        Returns:
            Plugin: the plugin.
        """
        raise NotImplementedError

    def shared_plugin(self) -> Plugin:
        """The plugin of all cases of this class: each new one would make process groups that are never closed.

        Returns:
            Plugin: the plugin.
        """
        if type(self) not in self._plugins:
            self._plugins[type(self)] = self.plugin()
        return self._plugins[type(self)]

    def checkpoint_io(self) -> CheckpointIO:
        return self.shared_plugin().get_checkpoint_io()

    def build(self, seed: int = 1, recipe: Recipe | None = None) -> Subject:
        from colossalai.booster import Booster

        recipe = recipe or self.recipe()
        model = Weights(recipe.shapes, seed, recipe.dtype)
        optimizer = make_optimizer(recipe, list(model.parameters()))
        plugin = self.shared_plugin()
        booster = Booster(plugin=plugin)
        model, optimizer, *_ = booster.boost(model, optimizer)

        def train(seed: int, ids: tuple[int, ...] | None) -> None:
            # Other data on every rank, as in data-parallel training.
            loss = model(1000 * seed + self.rank, ids)
            booster.backward(loss, optimizer)
            optimizer.step()
            optimizer.zero_grad()

        shapes = dict(enumerate(recipe.shapes))
        return Subject(
            recipe, model, optimizer, optimizer.unwrap(), shapes, recipe.groups, train, plugin.get_checkpoint_io()
        )
