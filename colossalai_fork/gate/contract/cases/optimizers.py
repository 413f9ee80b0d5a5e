"""ColossalAI's own optimizers, most of which know how the parameters that they step are distributed.

CAME and Adafactor keep second moments of the rows and of the columns of a matrix. These belong to the whole parameter only
where the ranks average together, which they do for parameters that tensor parallelism has cut, and not for ZeRO's slices
or copies in another precision: there nobody can save them as one state.
"""

import dataclasses
import os
from typing import Callable

import pytest
import torch

from ..base import ContractBase, case
from ..checkpoint_files import is_torch
from ..comparison import differences, frozen, look_at
from ..needs import Need
from ..parallel_weights import cut_dimension, padded
from ..subjects import Recipe, Subject
from .own_files import SIZES, OwnFilesCases

#: Keyword arguments of optimizers, by their names.
OPTIMIZERS = {
    "HybridAdam": {},
    "CPUAdam": {},
    "Lamb": {"bias_correction": True},
    "CAME": {},
    "colossalai.Adafactor": {"beta1": 0.9},
}
#: Those that keep moments of rows and columns.
FACTORED = ("CAME", "colossalai.Adafactor")
#: The dimension that each moment is averaged over.
AVERAGED_OVER = {"exp_avg_sq_row": 1, "exp_avg_res_row": 1, "exp_avg_sq_col": 0, "exp_avg_res_col": 0}

TAKES_THE_OPTIMIZER = Need(
    "the plugin cannot drive this optimizer", lambda contract, arguments: arguments["name"] in contract.optimizers
)
AVERAGES_TOGETHER = Need(
    "each rank averages its own part alone, and saving refuses that",
    lambda contract, arguments: arguments["name"] not in FACTORED or not contract.averages_apart,
)
AVERAGES_APART = Need("the ranks average together", lambda contract, _: contract.averages_apart)


class OptimizerCases(OwnFilesCases):
    """Vectors and matrices, one of which is cut along its rows, and another along its columns.

    Attributes:
        shapes (Tuple[Shape, ...]): of the parameters.
        averages_apart (bool): whether the ranks average rows and columns of their own parts alone.
        optimizers (Tuple[str, ...]): which optimizers the plugin can drive here.
    """

    # Nothing is padded: CAME and Adafactor have something else than zero where there is padding, which is not saved.
    shapes = ((4, 3), (6,), (3, 4), (8,))
    averages_apart = False
    optimizers = tuple(OPTIMIZERS)

    def recipe_of(self, name: str) -> Recipe:
        """The configuration's recipe with another optimizer.

        Args:
            name (str): its name.

        Returns:
            Recipe: the recipe.
        """
        return self.recipe(shapes=self.shapes, optimizer=name, options=OPTIMIZERS[name])

    def trained_on_some(self, recipe: Recipe, seed: int = 1) -> Subject:
        """A subject whose second parameter has no state.

        Args:
            recipe (Recipe): what to build.
            seed (int): seed of parameters and gradients.

        Returns:
            Subject: the subject.
        """
        subject = self.build(seed, recipe)
        used = tuple(each for each in subject.shapes if each != 1)
        for step in range(3):
            subject.train(10 * seed + step, used)
        return subject

    def local_value(self, subject: Subject, number: int | str, key: str, value: object) -> object:
        shape = subject.shapes.get(number)
        if key not in AVERAGED_OVER or len(shape) < 2:
            return super().local_value(subject, number, key, value)
        cut, over, size = cut_dimension(shape, self.tensor_parallel), AVERAGED_OVER[key], self.tensor_parallel
        if cut is None or cut == over:
            return value
        rank = torch.distributed.get_rank(self.shared_plugin().tp_group)
        return padded(value, 0, size).chunk(size)[rank].clone()

    def good_load_works(self, subject: Subject) -> None:
        vectors = tuple(each for each, shape in subject.shapes.items() if len(shape) == 1)
        saved = self.saved(subject.recipe, vectors, seed=23)
        path = self.write(self.files(saved, self.layouts[0]), "good")
        # The twins of optimizers that know their parameters by identity cannot take a step.
        self.must_replace(subject, saved, path, step=False)

    @pytest.mark.parametrize("shards", [*SIZES, "one file"])
    @pytest.mark.parametrize("name", OPTIMIZERS)
    @case(1, 10, rows=(1, 4, 25), needs=[TAKES_THE_OPTIMIZER, AVERAGES_TOGETHER])
    def test_saves_loads_and_goes_on(self, name: str, shards: str) -> None:
        recipe = self.recipe_of(name)
        source, subject = self.trained_on_some(recipe), self.trained(2, recipe)
        options = {"shard": False} if shards == "one file" else {"size_per_shard": SIZES[shards]}
        self._goes_on_alike(source, subject, self.save(source, **options))

    @pytest.mark.parametrize("shards", [*SIZES, "one file"])
    @pytest.mark.parametrize("name", FACTORED)
    @case(3, rows=(25,), needs=[TAKES_THE_OPTIMIZER, AVERAGES_APART])
    def test_moments_that_belong_to_no_whole_are_not_saved(self, name: str, shards: str) -> None:
        recipe = self.recipe_of(name)
        source = self.trained_on_some(recipe)
        before, problems = look_at(source.inner), []
        options = {"shard": False} if shards == "one file" else {"shard": True, "size_per_shard": SIZES[shards]}
        try:
            self.checkpoint_io().save_optimizer(source.optimizer, os.path.join(self.directory, "own"), **options)
        except Exception as error:
            if not isinstance(error, ValueError) or "exp_avg_sq_" not in str(error):
                problems.append(f"raised {type(error).__name__}, which does not say that state is refused: {error}")
        else:
            problems.append("the average of one rank was saved as that of all")
        self.verdict(problems + differences(before, look_at(source.inner), "after the refusal, "))

    @pytest.mark.parametrize("name", OPTIMIZERS)
    @case(1, rows=(1, 25), needs=[TAKES_THE_OPTIMIZER])
    def test_saved_by_the_optimizer_in_one_process(self, name: str, layout: str) -> None:
        recipe = self.recipe_of(name)
        subject = self.trained(2, recipe)
        saved = self.saved(recipe, ids=tuple(each for each in subject.shapes if each != 1))
        path = self.write(self.files(saved, layout))
        if name in FACTORED and self.zero:
            self.must_refuse(subject, path, ["exp_avg_sq_row", "exp_avg_sq_col"], kinds=ValueError)
        else:
            self.must_replace(subject, saved, path, step=False)

    @pytest.mark.parametrize(
        "key, transposed", [("exp_avg_sq_row", "exp_avg_sq_col"), ("exp_avg_sq_col", "exp_avg_sq_row")]
    )
    @pytest.mark.parametrize("name", FACTORED)
    @case(2, 3, rows=(8,), needs=[TAKES_THE_OPTIMIZER])
    def test_moments_of_something_else(self, name: str, key: str, transposed: str, layout: str) -> None:
        recipe = self.recipe_of(name)
        subject = self.trained(2, recipe)
        saved = self.saved(recipe)
        saved["state"][2][key] = frozen(saved["state"][2][transposed])
        self.must_refuse(subject, self.write(self.files(saved, layout)), [key], kinds=ValueError)

    @case(2, 3, 8, rows=(22,), layouts=is_torch)
    def test_projection_of_galore(self, layout: str) -> None:
        # It is kept as an object, and to make one of a file is to run what the file says.
        from colossalai.nn.optimizer.galore import GaLoreProjector

        subject = self.trained()
        saved = self.saved()
        saved["state"][0]["projector"] = GaLoreProjector(2)
        for group in saved["param_groups"]:
            group.update(rank=2, update_proj_gap=200, proj_type="std", scale=0.25)
        self.must_refuse(subject, self.write(self.files(saved, layout)), ["GaLoreProjector"])


class TorchsAdamCases(ContractBase):
    """What torch's Adam has saved, loaded into ColossalAI's, as unmodified ColossalAI loads it."""

    @case(1, rows=(16,))
    def test_file_of_torchs_adam(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(dataclasses.replace(self.recipe(), optimizer="Adam"), ids=(0, 2))
        # Torch's Adam has no option not to.
        groups = [{**group, "bias_correction": True} for group in saved["param_groups"]]
        path = self.write(self.files(saved, layout))
        self.must_replace(subject, {**saved, "param_groups": groups}, path)


def only_cases_of(*kinds: type) -> Callable[[type], type]:
    """Leave out all other cases of a configuration, because another one of its class runs them.

    Args:
        kinds (type): classes of cases.

    Returns:
        Callable: the decorator of the configuration.
    """
    kept = {name for kind in kinds for name in vars(kind)}

    def decorate(cls: type) -> type:
        for name in dir(cls):
            if name.startswith("test_") and name not in kept:
                setattr(cls, name, None)
        return cls

    return decorate
