"""How FSDP wraps the model of a recipe, and which part of the saved state a rank holds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from ..contract.cases.torch_fsdp import FlatParameterCases
from ..contract.fsdp_units import Unit, Units, Wrapping
from ..contract.subjects import Recipe, Subject, make_optimizer
from .boosted import BoosterContract

if TYPE_CHECKING:
    from colossalai.booster.plugin import Plugin
    from colossalai.interface import OptimizerWrapper


@dataclasses.dataclass
class FSDPSubject(Subject):
    """A model in FSDP, with its optimizer.

    Attributes:
        wrapping (Wrapping): how.
        units (Tuple[Tuple[int, ...], ...]): ids that are flattened together.
    """

    wrapping: Wrapping = Wrapping()
    units: tuple[tuple[int, ...], ...] = ()


class TorchFSDPContract(FlatParameterCases, BoosterContract):
    """TorchFSDPCheckpointIO: parameters are flattened into larger ones, of which each rank holds an equal slice.

    Attributes:
        strategy (str): FSDP's sharding strategy.
    """

    class_under_test = "TorchFSDPCheckpointIO"
    cuts = True
    whole_optimizers = False
    keeps_names = False
    linear_in_parameters = False
    not_applicable = {
        "test_reads_its_own_part_only": "FSDP makes its flat slices from whole tensors, so every rank reads all of them"
    }
    strategy = "FULL_SHARD"
    hangs = (
        "test_integer_step",
        "test_interrupted_rank_that_begins_again",
        "test_one_rank_fails",
        "test_one_rank_lacks_a_file",
        "test_tensor_without_data",
        "test_text_stays_text",
    )

    def plugin(self) -> Plugin:
        from colossalai.booster.plugin import TorchFSDPPlugin
        from torch.distributed.fsdp import ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        strategy = ShardingStrategy[self.strategy]
        return TorchFSDPPlugin(sharding_strategy=strategy, auto_wrap_policy=ModuleWrapPolicy({Unit}))

    def build(self, seed: int = 1, recipe: Recipe | None = None, wrapping: Wrapping = Wrapping()) -> FSDPSubject:
        recipe = recipe or self.recipe()
        self.require(all(recipe.shapes), "FSDP flattens no parameter that is a single number")
        units = wrapping.units or tuple((each,) for each in range(len(recipe.shapes)))
        weights = Units(recipe.shapes, units, seed, recipe.dtype)
        # The optimizer's parameters are numbered by unit.
        groups = tuple(tuple(number for number, held in enumerate(units) if held[0] in ids) for ids in recipe.groups)
        made = self._boosted if wrapping.by_plugin else self._wrapped
        model, optimizer = made(weights, dataclasses.replace(recipe, groups=groups), wrapping)

        def train(seed: int, ids: tuple[int, ...] | None) -> None:
            model(1000 * seed + self.rank, ids).backward()
            optimizer.step()
            optimizer.zero_grad()

        shapes = dict(enumerate(recipe.shapes))
        io = self.checkpoint_io()
        return FSDPSubject(
            recipe, model, optimizer, optimizer.unwrap(), shapes, recipe.groups, train, io, wrapping, units
        )

    def _boosted(self, weights: Units, recipe: Recipe, wrapping: Wrapping) -> tuple[torch.nn.Module, OptimizerWrapper]:
        from colossalai.booster import Booster

        booster = Booster(plugin=self.shared_plugin())
        model, optimizer, *_ = booster.boost(weights, make_optimizer(recipe, list(weights.parameters())))
        return model, optimizer

    def _wrapped(self, weights: Units, recipe: Recipe, wrapping: Wrapping) -> tuple[torch.nn.Module, OptimizerWrapper]:
        # The plugin makes one group of all parameters, so what it is made of is put together here.
        from colossalai.booster.plugin.torch_fsdp_plugin import FSDPOptimizerWrapper, TorchFSDPModel
        from torch.distributed.fsdp import ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        model = TorchFSDPModel(
            weights,
            device_id=torch.cuda.current_device(),
            sharding_strategy=ShardingStrategy[self.strategy],
            auto_wrap_policy=ModuleWrapPolicy({Unit}),
            use_orig_params=wrapping.keeps_originals,
            ignored_modules=[weights.units[each] for each in wrapping.ignored],
        )
        return model, FSDPOptimizerWrapper(make_optimizer(recipe, list(model.parameters())), model)

    def trained_in(self, wrapping: Wrapping, recipe: Recipe | None = None) -> FSDPSubject:
        """A subject that is wrapped in some way, and whose optimizer has state for every parameter.

        Args:
            wrapping (Wrapping): the way.
            recipe (Optional[Recipe]): what to build.

        Returns:
            FSDPSubject: the subject.
        """
        subject = self.build(1, recipe, wrapping)
        for step in range(2):
            subject.train(100 + step, None)
        return subject

    def local_state(self, subject: FSDPSubject, saved: dict[str, Any]) -> dict[str, Any]:
        # The first id of a unit stands for all of them.
        labels = [label for group in saved["param_groups"] or [{"params": subject.shapes}] for label in group["params"]]
        state = {key: value for key, value in saved["state"].items() if not isinstance(key, int)}
        firsts = []
        for ids in subject.units:
            held = [labels[each] for each in ids]
            firsts.append(held[0])
            entries = self._local_entries(subject, ids, [saved["state"].get(label) for label in held])
            if entries:
                state[held[0]] = entries
        groups = [
            {**group, "params": [each for each in group["params"] if each in firsts]} for group in saved["param_groups"]
        ]
        return {"state": state, "param_groups": groups}

    def _local_entries(
        self, subject: FSDPSubject, ids: tuple[int, ...], states: list[dict[str, Any] | None]
    ) -> dict[str, Any]:
        if not states[0]:
            # An empty entry is a parameter without state, which FSDP has no form for.
            return {}
        keeps_originals = subject.wrapping.keeps_originals and self._slices
        if keeps_originals and not self._part_of_original(torch.empty(subject.shapes[ids[0]])).numel():
            return {}
        entries = {}
        for key, value in states[0].items():
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                entries[key] = value
            elif keeps_originals:
                entries[key] = self._part_of_original(value)
            elif subject.wrapping.keeps_originals or ids[0] in subject.wrapping.ignored:
                entries[key] = value
            else:
                dtype = value.dtype if len(ids) == 1 else subject.recipe.dtype
                entries[key] = self._slice(torch.cat([state[key].to(dtype).reshape(-1) for state in states]))
        return entries

    @property
    def _slices(self) -> bool:
        return self.world_size > 1 and self.strategy != "NO_SHARD"

    def _slice(self, flat: torch.Tensor) -> torch.Tensor:
        """This rank's slice of a flat parameter's state.

        Args:
            flat (torch.Tensor): all of it.

        Returns:
            torch.Tensor: the slice, padded with zeros.
        """
        if not self._slices:
            return flat.clone()
        length = -(-flat.numel() // self.world_size)
        padded = torch.zeros(length * self.world_size, dtype=flat.dtype)
        padded[: flat.numel()] = flat
        return padded[length * self.rank : length * (self.rank + 1)].clone()

    def _part_of_original(self, value: torch.Tensor) -> torch.Tensor:
        """What this rank has of a parameter that the optimizer knows by itself: its slice without the padding.

        Args:
            value (torch.Tensor): state of the parameter.

        Returns:
            torch.Tensor: the part, which may have no elements.
        """
        length = -(-value.numel() // self.world_size)
        return value.reshape(-1)[length * self.rank : length * (self.rank + 1)].clone()

    def _large(self, shards: int = 5, elements: int = 2**21) -> tuple[Recipe, int, int]:
        # What is in memory at a time is a few flat parameters, however many a shard holds.
        recipe, total, per_flat_parameter = super()._large(4 * shards, elements // 4)
        return recipe, total, 4 * per_flat_parameter
