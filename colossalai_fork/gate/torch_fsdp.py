"""How FSDP wraps the model of a recipe, and which part of the saved state a rank holds."""

import torch

from .configurations import BoosterContract
from .contract_base import case
from .subjects import Subject, make_optimizer


class Weight(torch.nn.Module):
    """A module of one parameter: FSDP wraps modules, so each parameter of a model that is to be apart needs its own.

    Args:
        values (torch.Tensor): the parameter.
    """

    def __init__(self, values):
        super().__init__()
        self.values = torch.nn.Parameter(values)

    def forward(self, coefficients):
        """The parameter's part of the loss.

        Args:
            coefficients (torch.Tensor): of the parameter's shape.

        Returns:
            torch.Tensor: a number.
        """
        return (self.values * coefficients).sum() + self.values.square().sum() / 2


class WeightModules(torch.nn.Module):
    """Parameters of given shapes, each in a module of its own, and a loss in which each takes part on its own.

    Args:
        shapes (Tuple[Shape, ...]): the shapes.
        seed (int): seed of their values.
        dtype (torch.dtype): their dtype.
    """

    def __init__(self, shapes, seed, dtype=torch.float32):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weights = torch.nn.ModuleList(Weight(torch.randn(each, generator=generator).to(dtype)) for each in shapes)
        self.shapes = shapes

    def forward(self, seed, ids=None):
        """A loss.

        Args:
            seed (int): seed of its coefficients.
            ids (Optional[Tuple[int, ...]]): parameters that take part, None for all.

        Returns:
            torch.Tensor: a number.
        """
        generator = torch.Generator().manual_seed(seed)
        loss = torch.zeros(())
        for number, (weight, shape) in enumerate(zip(self.weights, self.shapes)):
            coefficients = torch.randn(shape, generator=generator)
            if ids is None or number in ids:
                loss = loss + weight(coefficients)
        return loss


class TorchFSDPContract(BoosterContract):
    """TorchFSDPCheckpointIO: parameters are flattened into larger ones, of which each rank holds an equal slice.

    Attributes:
        together (bool): whether all parameters are flattened into one, or each for itself.
        strategy (str): FSDP's sharding strategy.
    """

    class_under_test = "TorchFSDPCheckpointIO"
    cuts = True
    whole_optimizers = False
    keeps_names = False
    linear_in_parameters = False
    together = False
    strategy = "FULL_SHARD"

    def plugin(self):
        from colossalai.booster.plugin import TorchFSDPPlugin

        return TorchFSDPPlugin()

    def build(self, seed=1, recipe=None):
        from colossalai.booster.plugin.torch_fsdp_plugin import FSDPOptimizerWrapper, TorchFSDPModel
        from torch.distributed.fsdp import ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        recipe = recipe or self.recipe()
        self.require(all(recipe.shapes), "FSDP flattens no parameter that is a single number")
        # The plugin would make one group of all parameters, so the parts that it is made of are put together here.
        model = TorchFSDPModel(
            WeightModules(recipe.shapes, seed, recipe.dtype),
            device_id=torch.cuda.current_device(),
            sharding_strategy=ShardingStrategy[self.strategy],
            auto_wrap_policy=None if self.together else ModuleWrapPolicy({Weight}),
        )
        optimizer = FSDPOptimizerWrapper(make_optimizer(recipe, list(model.parameters())), model)

        def train(seed, ids):
            model(1000 * seed + self.rank, ids).backward()
            optimizer.step()
            optimizer.zero_grad()

        shapes = dict(enumerate(recipe.shapes))
        io = self.checkpoint_io()
        return Subject(recipe, model, optimizer, optimizer.unwrap(), shapes, recipe.groups, train, io)

    @case(6, guard="unmodified ColossalAI reads everything too")
    def test_reads_its_own_part_only(self):
        self.require(False, "FSDP makes its flat slices from whole tensors, so every rank reads all of them")

    def _large(self, shards=5, elements=2**21):
        # What is in memory at a time is a few flat parameters, however many a shard holds.
        recipe, total, per_flat_parameter = super()._large(4 * shards, elements // 4)
        return recipe, total, 4 * per_flat_parameter

    def local_state(self, subject, saved):
        state = {
            param_id: {key: self.slice_of(param_id, key, value) for key, value in entries.items()}
            for param_id, entries in saved["state"].items()
            # An empty entry is a parameter without state, which FSDP has no form for.
            if entries
        }
        return {**saved, "state": state}

    def slice_of(self, param_id, key, value):
        """This rank's slice of a value that there is one number of for each element; anything else is kept whole.

        Args:
            param_id (int): the parameter.
            key (str): name of the value.
            value (object): a value of its state.

        Returns:
            object: the slice.
        """
        if not isinstance(value, torch.Tensor) or value.dim() == 0 or not isinstance(param_id, int):
            return value
        flat = value.reshape(-1)
        if self.world_size == 1 or self.strategy == "NO_SHARD":
            return flat.clone()
        length = -(-flat.numel() // self.world_size)
        padded = torch.zeros(length * self.world_size, dtype=value.dtype)
        padded[: flat.numel()] = flat
        return padded[length * self.rank : length * (self.rank + 1)].clone()
