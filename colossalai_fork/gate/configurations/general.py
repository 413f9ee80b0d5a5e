"""GeneralCheckpointIO: a plain model and a plain optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..contract import OptimizerLoadContract
from ..contract.subjects import Recipe, Subject, Weights, make_optimizer

if TYPE_CHECKING:
    from colossalai.checkpoint_io import CheckpointIO


class GeneralContract(OptimizerLoadContract):
    """GeneralCheckpointIO: a plain model and a plain optimizer in one process."""

    class_under_test = "GeneralCheckpointIO"

    def checkpoint_io(self) -> CheckpointIO:
        from colossalai.checkpoint_io import GeneralCheckpointIO

        return GeneralCheckpointIO()

    def build(self, seed: int = 1, recipe: Recipe | None = None) -> Subject:
        recipe = recipe or self.recipe()
        model = Weights(recipe.shapes, seed, recipe.dtype).to(self.device)
        optimizer = make_optimizer(recipe, list(model.parameters()))

        def train(seed: int, ids: tuple[int, ...] | None) -> None:
            optimizer.zero_grad()
            model(seed, ids).backward()
            optimizer.step()

        shapes = dict(enumerate(recipe.shapes))
        return Subject(recipe, model, optimizer, optimizer, shapes, recipe.groups, train)
