"""GeneralCheckpointIO: a plain model and a plain optimizer."""

from ..contract import OptimizerLoadContract
from ..contract.subjects import Subject, Weights, make_optimizer


class GeneralContract(OptimizerLoadContract):
    """GeneralCheckpointIO: a plain model and a plain optimizer in one process."""

    class_under_test = "GeneralCheckpointIO"

    def checkpoint_io(self):
        from colossalai.checkpoint_io import GeneralCheckpointIO

        return GeneralCheckpointIO()

    def build(self, seed=1, recipe=None):
        recipe = recipe or self.recipe()
        model = Weights(recipe.shapes, seed, recipe.dtype).to(self.device)
        optimizer = make_optimizer(recipe, list(model.parameters()))

        def train(seed, ids):
            optimizer.zero_grad()
            model(seed, ids).backward()
            optimizer.step()

        shapes = dict(enumerate(recipe.shapes))
        return Subject(recipe, model, optimizer, optimizer, shapes, recipe.groups, train)
