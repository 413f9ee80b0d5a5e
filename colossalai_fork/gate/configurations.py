"""How ColossalAI's plugins make models and optimizers of a recipe, and which part of the saved state a rank holds."""

import pytest
import torch

from .cases_own_files import SIZES
from .cases_state_dicts import StateDictCases
from .contract import OptimizerLoadContract
from .contract_base import case
from .other_guards import guarded_by
from .subjects import Subject, Weights, make_optimizer

#: State that is one number for a parameter, whatever the parameter's shape.
SCALARS = ("step", "mu_product", "mu", "eta", "count", "scale")


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


class BoosterContract(OptimizerLoadContract):
    """A configuration that a Booster plugin makes."""

    distributed = True
    _plugins = {}

    def plugin(self):
        """Make the plugin.

        Returns:
            Plugin: the plugin.
        """
        raise NotImplementedError

    def shared_plugin(self):
        """The plugin of all cases of this class: each new one would make process groups that are never closed.

        Returns:
            Plugin: the plugin.
        """
        if type(self) not in self._plugins:
            self._plugins[type(self)] = self.plugin()
        return self._plugins[type(self)]

    def checkpoint_io(self):
        return self.shared_plugin().get_checkpoint_io()

    def build(self, seed=1, recipe=None):
        from colossalai.booster import Booster

        recipe = recipe or self.recipe()
        model = Weights(recipe.shapes, seed, recipe.dtype)
        optimizer = make_optimizer(recipe, list(model.parameters()))
        plugin = self.shared_plugin()
        booster = Booster(plugin=plugin)
        model, optimizer, *_ = booster.boost(model, optimizer)

        def train(seed, ids):
            # Other data on every rank, as in data-parallel training.
            loss = model(1000 * seed + self.rank, ids)
            booster.backward(loss, optimizer)
            optimizer.step()
            optimizer.zero_grad()

        shapes = dict(enumerate(recipe.shapes))
        return Subject(
            recipe, model, optimizer, optimizer.unwrap(), shapes, recipe.groups, train, plugin.get_checkpoint_io()
        )


class TorchDDPContract(BoosterContract):
    """TorchDDPCheckpointIO: every rank holds the whole state."""

    class_under_test = "TorchDDPCheckpointIO"

    def plugin(self):
        from colossalai.booster.plugin import TorchDDPPlugin

        return TorchDDPPlugin(find_unused_parameters=True)


class LowLevelZeroContract(StateDictCases, BoosterContract):
    """LowLevelZeroCheckpointIO: every parameter is flattened, padded and dealt to the ranks in equal slices.

    Attributes:
        stage (int): ZeRO stage.
        precision (str): precision of the working parameters; the slices are held in float32.
        offload (bool): whether the slices and their state are held in host memory.
        extra_data_parallel (int): size of the outer data-parallel groups.
    """

    class_under_test = "LowLevelZeroCheckpointIO"
    by_position = False
    cuts = True
    whole_optimizers = False
    test_saving_makes_no_state = guarded_by(
        BoosterContract.test_saving_makes_no_state,
        lambda arguments: "state is saved as it is" if arguments["shards"] == "one file" else None,
    )
    stage = 1
    precision = "bf16"
    offload = False
    extra_data_parallel = 1

    def plugin(self):
        from colossalai.booster.plugin import LowLevelZeroPlugin

        return LowLevelZeroPlugin(
            stage=self.stage,
            precision=self.precision,
            cpu_offload=self.offload,
            initial_scale=8.0,
            extra_dp_size=self.extra_data_parallel,
        )

    def state_dtype(self, recipe):
        return torch.float32

    def local_state(self, subject, saved):
        state = {
            param_id: {key: self.slice_of(subject.shapes.get(param_id), key, value) for key, value in entries.items()}
            for param_id, entries in saved["state"].items()
        }
        return {**saved, "state": state}

    @pytest.mark.parametrize("shards", SIZES)
    @case(1, rows=(12,))
    def test_state_of_the_optimizer_itself_is_saved(self, shards):
        source, subject = self.trained(1, steps=3), self.trained(2)
        source.inner.state["global"] = {"seen": torch.arange(3), "name": 4}
        self._goes_on_alike(source, subject, self.save(source, size_per_shard=SIZES[shards]))

    def slice_of(self, shape, key, value):
        """This rank's slice of a value that has the parameter's shape; anything else is kept whole.

        Args:
            shape (Optional[Shape]): global shape of the parameter.
            key (str): name of the value.
            value (object): a value of its state.

        Returns:
            object: the slice.
        """
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape or key in SCALARS:
            return value
        length = -(-value.numel() // self.world_size)
        padded = torch.zeros(length * self.world_size, dtype=value.dtype)
        padded[: value.numel()] = value.reshape(-1)
        return padded[length * self.rank : length * (self.rank + 1)].clone()
