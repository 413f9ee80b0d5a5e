"""How HybridParallelPlugin distributes models and optimizers, and which part of the saved state a rank holds."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator

import pytest
import torch

from ..contract.base import case
from ..contract.cases.own_files import shards_in
from ..contract.cases.unmodified_files import UnmodifiedFilesCases
from ..contract.comparison import differences
from ..contract.needs import CUT_TENSORS, Need
from ..contract.parallel_weights import ParallelWeights, WeightsPolicy, part_of
from ..contract.subjects import Recipe, Subject, make_optimizer
from .boosted import SCALARS, BoosterContract

if TYPE_CHECKING:
    from colossalai.booster import Booster
    from colossalai.booster.plugin import Plugin
    from colossalai.interface import OptimizerWrapper

#: State that is a number for each row or column, by the dimension that it has one number for.
AVERAGED = {"exp_avg_sq_row": -1, "exp_avg_sq_col": -2}
REMOVES_SHARDS = Need(
    "the class leaves shards of earlier saves, which its index does not name",
    lambda contract, _: contract.removes_shards,
)
UNFLATTENED = Need(
    "ZeRO flattens the weights, which have no rows and columns then", lambda contract, _: not contract.zero
)


def without(*kinds: type) -> Callable[[type], type]:
    """Leave out cases that say nothing new about a configuration, because another one of the class runs them.

    Args:
        kinds (type): classes of cases.

    Returns:
        Callable: the decorator of the configuration.
    """

    def decorate(cls: type) -> type:
        for name in [each for kind in kinds for each in vars(kind) if each.startswith("test_")]:
            setattr(cls, name, None)
        return cls

    return decorate


class HybridParallelContract(UnmodifiedFilesCases, BoosterContract):
    """HybridParallelCheckpointIO: weights are dealt to pipeline stages, cut by tensor parallelism, and sliced by ZeRO.

    Attributes:
        tensor_parallel (int): size of the tensor parallel groups.
        stages (int): number of pipeline stages.
        zero (int): ZeRO stage, 0 for plain data parallelism.
        precision (str): precision of the working parameters; anything but fp32 is stepped on copies in float32.
        options (dict): more arguments of the plugin.
        removes_shards (bool): whether saving removes the shards of an earlier save.
    """

    class_under_test = "HybridParallelCheckpointIO"
    by_position = False
    tensor_parallel = 1
    stages = 1
    zero = 0
    precision = "fp32"
    options = {}
    removes_shards = True

    @property
    def cuts(self) -> bool:
        """Whether a rank keeps a part of the state only."""
        return self.tensor_parallel > 1 or self.stages > 1 or self.zero > 0

    @property
    def whole_tensors(self) -> bool:
        """Whether what a rank has of a parameter's state it has whole."""
        return self.tensor_parallel == 1 and self.zero == 0

    @property
    def has_rows_and_columns(self) -> bool:
        """Whether what a rank has of a matrix has rows and columns still."""
        return self.zero == 0

    @property
    def whole_optimizers(self) -> bool:
        """Whether the torch optimizer holds the model's parameters as they are."""
        return not self.cuts and self.precision == "fp32"

    def recipe(self, **changes: Any) -> Recipe:
        # One weight is cut along its columns.
        return super().recipe(**{"shapes": ((4, 3), (5,), (3, 4), (7,)), **changes})

    def plugin(self) -> Plugin:
        from colossalai.booster.plugin import HybridParallelPlugin

        return HybridParallelPlugin(**self.plugin_arguments())

    def plugin_arguments(self) -> dict[str, Any]:
        """What the plugin is made with.

        Returns:
            dict: keyword arguments.
        """
        return {
            "tp_size": self.tensor_parallel,
            "pp_size": self.stages,
            "zero_stage": self.zero,
            "precision": self.precision,
            "initial_scale": 8.0,
            "num_microbatches": self.stages if self.stages > 1 else None,
            "find_unused_parameters": True,
            "custom_policy": WeightsPolicy(),
            **self.options,
        }

    def make_model(self, recipe: Recipe, seed: int) -> torch.nn.Module:
        """Make the model, before the plugin distributes it.

        Args:
            recipe (Recipe): what to make.
            seed (int): seed of its parameters.

        Returns:
            torch.nn.Module: the model; its parameters come in the order of their ids.
        """
        return ParallelWeights(recipe.shapes, seed, recipe.dtype)

    def go_through(
        self,
        booster: Booster,
        model: torch.nn.Module,
        optimizer: OptimizerWrapper,
        seed: int,
        ids: tuple[int, ...] | None,
    ) -> None:
        """Compute gradients.

        Args:
            booster (Booster): what distributed the model.
            model (torch.nn.Module): the model.
            optimizer (OptimizerWrapper): its optimizer.
            seed (int): seed of the data.
            ids (Optional[Tuple[int, ...]]): parameters that take part, None for all.
        """
        idle = self.zero and self.stages > 1 and ids is not None
        self.require(not idle, "ZeRO waits for gradients of every group on every stage")
        loss = model(seed, ids)
        if loss.requires_grad:
            booster.backward(loss, optimizer)

    def build(self, seed: int = 1, recipe: Recipe | None = None) -> Subject:
        from colossalai.booster import Booster

        recipe = recipe or self.recipe()
        model = self.make_model(recipe, seed)
        optimizer = make_optimizer(recipe, list(model.parameters()))
        plugin = self.shared_plugin()
        self.require_experts(recipe)
        booster = Booster(plugin=plugin)
        model, optimizer, *_ = booster.boost(model, optimizer)
        data_parallel_rank = torch.distributed.get_rank(plugin.dp_group)

        def train(seed: int, ids: tuple[int, ...] | None) -> None:
            # Other data on every data parallel rank, the same on those that hold parts of one model.
            self.go_through(booster, model, optimizer, 1000 * seed + data_parallel_rank, ids)
            optimizer.step()
            optimizer.zero_grad()

        shapes = dict(enumerate(recipe.shapes))
        return Subject(
            recipe, model, optimizer, optimizer.unwrap(), shapes, recipe.groups, train, plugin.get_checkpoint_io()
        )

    def require_experts(self, recipe: Recipe) -> None:
        """Leave the case if the plugin cannot distribute the recipe.

        Args:
            recipe (Recipe): the recipe.
        """

    def state_dtype(self, recipe: Recipe) -> torch.dtype:
        return recipe.dtype if self.precision == "fp32" else torch.float32

    # ------------------------------------------------------------------ this rank's place

    def holds(self, number: int) -> bool:
        """Whether this rank holds any part of a weight.

        Args:
            number (int): its id.

        Returns:
            bool: whether it does.
        """
        return number % self.stages == torch.distributed.get_rank(self.shared_plugin().pp_group)

    def slicing_group(self, number: int) -> torch.distributed.ProcessGroup:
        """The ranks that ZeRO divides a weight among.

        Args:
            number (int): its id.

        Returns:
            ProcessGroup: the group.
        """
        return self.shared_plugin().dp_group

    def local_state(self, subject: Subject, saved: dict[str, Any]) -> dict[str, Any]:
        held = {number for number in subject.shapes if self.holds(number)}
        groups = [
            {**group, "params": [each for each in group["params"] if each in held]} for group in saved["param_groups"]
        ]
        state = {
            number: {key: self.local_value(subject, number, key, value) for key, value in entries.items()}
            for number, entries in saved["state"].items()
            if number in held or not isinstance(number, int)
        }
        return {"state": state, "param_groups": groups}

    def local_value(self, subject: Subject, number: int | str, key: str, value: object) -> object:
        """This rank's part of a value that has the weight's shape; anything else is kept whole.

        Args:
            subject (Subject): whose weight it is.
            number (int | str): id of the weight, or the name of what belongs to no weight.
            key (str): name of the value.
            value (object): the value.

        Returns:
            object: the part.
        """
        shape = subject.shapes.get(number)
        rank = torch.distributed.get_rank(self.shared_plugin().tp_group)
        if key in AVERAGED:
            # Spread over the weight, cut, and taken from where the part begins.
            spread = value.unsqueeze(AVERAGED[key]).expand(shape)
            return self.tensor_parallel_part(number, spread, rank).select(AVERAGED[key], 0).clone()
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape or key in SCALARS:
            return value
        value = self.tensor_parallel_part(number, value, rank)
        if not self.zero:
            return value
        group = self.slicing_group(number)
        rank, size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
        length = -(-value.numel() // size)
        flat = torch.zeros(length * size, dtype=value.dtype)
        flat[: value.numel()] = value.reshape(-1)
        return flat[length * rank : length * (rank + 1)].clone()

    def tensor_parallel_part(self, number: int, value: torch.Tensor, rank: int) -> torch.Tensor:
        """The part of something of a weight's shape on a tensor parallel rank.

        Args:
            number (int): id of the weight.
            value (torch.Tensor): the whole.
            rank (int): the rank.

        Returns:
            torch.Tensor: the part.
        """
        return part_of(value, rank, self.tensor_parallel)

    # ------------------------------------------------------------------ what unmodified ColossalAI can save

    @property
    def pads_parts(self) -> bool:
        """Whether weights are padded before tensor parallelism cuts them."""
        return self.tensor_parallel > 1

    @property
    def unsaveable(self) -> str | None:
        """Optional[str]: why unmodified ColossalAI cannot save this configuration; None if it can."""
        return "it cannot save weights that are padded before they are cut" if self.pads_parts else None

    @contextlib.contextmanager
    def unmodified(self) -> Iterator[None]:
        self.require(self.unsaveable is None, self.unsaveable)
        with super().unmodified():
            yield

    # ------------------------------------------------------------------ cases that know who holds what

    def _spoilt_copy(self, path: str, layout: str, fault: str) -> tuple[str, list[object]]:
        if fault != "a shape":
            return super()._spoilt_copy(path, layout, fault)
        files = self.files(self.saved(), layout)
        number = next(each for each in files.states if self.holds(each))
        files.states[number]["exp_avg"] = torch.ones(99)
        return files.write(os.path.join(self.directory, f"of-rank-{self.rank}")), [(99,)]

    @case(1, rows=(21,), needs=[REMOVES_SHARDS])
    def test_nothing_of_an_earlier_save_is_left(self) -> None:
        source = self.trained(1)
        path = self.save(source, size_per_shard=1e-9)
        self.everyone(None)
        earlier = self.everyone(shards_in(path))[0]
        self.save(source, size_per_shard=1024)
        self.everyone(None)
        shards = shards_in(path)
        # Each stage saves its own.
        problems = [] if len(earlier) > self.stages else [f"shards that should hold a parameter each: {earlier}"]
        left = [] if len(shards) == self.stages else [f"shards of the earlier save are left: {shards}"]
        self.verdict(problems + left)

    @pytest.mark.parametrize("name", ["RowsAndColumns", "Adafactor"])
    @case(1, rows=(25,), needs=[UNFLATTENED])
    def test_saved_by_an_optimizer_of_rows_and_columns(self, name: str) -> None:
        self.require(name != "Adafactor" or hasattr(torch.optim, name), "this torch has no such optimizer")
        recipe = self.recipe(optimizer=name)
        source, subject = self.trained(1, recipe, 3), self.trained(2, recipe)
        self._goes_on_alike(source, subject, self.save(source))

    @case(1, needs=[CUT_TENSORS])
    def test_state_that_is_no_part_is_not_saved(self) -> None:
        source = self.trained(1)
        source.inner.state[source.parameters[0]]["odd"] = torch.ones(99)
        error = None
        try:
            self.checkpoint_io().save_optimizer(source.optimizer, os.path.join(self.directory, "own"), shard=True)
        except Exception as raised:
            error = raised
        told = isinstance(error, ValueError) and "odd" in str(error)
        self.verdict([] if told else [f"state of another shape than the weight's part was put together: {error!r}"])

    @case(1, rows=(25,))
    def test_files_hold_whole_tensors(self) -> None:
        source = self.trained(1)
        path = self.save(source)
        states = {}
        for name in sorted(os.listdir(path)):
            if name.startswith("pytorch_optim") and "group" not in name and name.endswith(".bin"):
                states.update(torch.load(os.path.join(path, name), weights_only=True))
        local = self.local_state(source, {"state": states, "param_groups": []})["state"]
        ids = [each for group in source.groups for each in group if self.holds(each)]
        mine = {number: dict(source.inner.state[each]) for number, each in zip(ids, source.parameters)}
        shapes = {number: tuple(state["exp_avg"].shape) for number, state in sorted(states.items())}
        self.verdict(differences(source.shapes, shapes, "saved shapes") + differences(mine, local, "saved state"))
