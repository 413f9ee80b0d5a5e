"""Contract points 2 and 3: what does not fit the optimizer is refused before anything has changed."""

from typing import Any, Callable

import numpy
import pytest
import torch

from ..base import ContractBase, case
from ..checkpoint_files import is_sharded, is_torch
from ..comparison import frozen
from ..needs import CUT_TENSORS, IDS_ARE_LABELS, KEEPS_NAMES, NO_NAMES, NO_ROWS_AND_COLUMNS, SEVERAL_GROUPS, Need
from ..subjects import Shape, Subject


def merged(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All parameters in one group.

    Args:
        groups (list): saved groups.

    Returns:
        list: one group.
    """
    return [{**groups[0], "params": [each for group in groups for each in group["params"]]}]


def moved(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last parameter of the first group put first in the second.

    Args:
        groups (list): saved groups.

    Returns:
        list: as many groups, of other sizes.
    """
    first, second, *rest = ({**group, "params": list(group["params"])} for group in groups)
    second["params"].insert(0, first["params"].pop())
    return [first, second, *rest]


def split(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first group in two.

    Args:
        groups (list): saved groups.

    Returns:
        list: one group more.
    """
    ids = groups[0]["params"]
    return [{**groups[0], "params": ids[:1]}, {**groups[0], "params": ids[1:]}, *groups[1:]]


def shorter(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last parameter left out.

    Args:
        groups (list): saved groups.

    Returns:
        list: as many groups.
    """
    return [*groups[:-1], {**groups[-1], "params": groups[-1]["params"][:-1]}]


def one_more(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A group without parameters at the end.

    Args:
        groups (list): saved groups.

    Returns:
        list: one group more.
    """
    return [*groups, {**groups[-1], "params": []}]


def an_id_and_shape(subject: Subject) -> tuple[int, Shape]:
    """A parameter with more than one element and more than one dimension.

    Args:
        subject (Subject): the subject.

    Returns:
        Tuple[int, Shape]: its id and shape.
    """
    return next((each, shape) for each, shape in subject.shapes.items() if len(shape) > 1 and shape[0] > 1)


REFUSES_THE_SHAPE = Need(
    "ColossalAI writes such state itself",
    lambda contract, arguments: arguments["new_shape"] != "flat" or not contract.accepts_flat_state,
)


class RefusingCases(ContractBase):
    """Checkpoints that are sound, but not this optimizer's."""

    @pytest.mark.parametrize("change", [merged, moved, split, shorter, one_more], ids=lambda change: change.__name__)
    @case(2, 3, rows=(6,), needs=[SEVERAL_GROUPS])
    def test_other_groups(self, layout: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        subject = self.trained()
        saved = self.saved()
        # Without state, nothing but the groups themselves tells that this parameter is missing in the shorter ones.
        saved["state"].pop(saved["param_groups"][-1]["params"][-1])
        files = self.files(saved, layout)
        files.groups = change(files.groups)
        self.must_refuse(subject, self.write(files), ["group"], kinds=ValueError)

    @case(2, 3, rows=(6,), needs=[SEVERAL_GROUPS])
    def test_more_groups_than_the_optimizer_has(self, layout: str) -> None:
        everything = tuple(range(len(self.recipe().shapes)))
        subject = self.trained(recipe=self.recipe(groups=(everything,), rates=(0.01,)))
        saved = self.saved()
        self.must_refuse(subject, self.write(self.files(saved, layout)), ["group"], kinds=ValueError)

    @pytest.mark.parametrize("new_shape", ["shorter", "longer", "transposed", "another dimension", "flat", "a number"])
    @case(2, 3, rows=(8,), needs=[REFUSES_THE_SHAPE])
    def test_state_of_another_shape(self, layout: str, new_shape: str) -> None:
        subject = self.trained()
        saved = self.saved()
        param_id, shape = an_id_and_shape(subject)
        value = saved["state"][param_id]["exp_avg"]
        wrong = {
            "shorter": value[: shape[0] - 1],
            "longer": torch.cat([value, value]),
            "transposed": value.transpose(0, -1).contiguous(),
            "another dimension": value[None],
            "flat": value.flatten(),
            "a number": value.flatten()[0],
        }[new_shape]
        saved["state"][param_id]["exp_avg"] = wrong.clone()
        files = self.files(saved, layout)
        mentions = ["exp_avg", param_id, shape, tuple(wrong.shape)]
        self.must_refuse(subject, self.write(files), mentions, kinds=ValueError)

    @case(2, 3, rows=(8,))
    def test_state_of_a_vector_one_element_too_long(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        param_id = next(each for each, shape in subject.shapes.items() if len(shape) == 1 and shape[0] > 1)
        size = subject.shapes[param_id][0]
        saved["state"][param_id]["exp_avg_sq"] = torch.ones(size + 1)
        self.must_refuse(
            subject,
            self.write(self.files(saved, layout)),
            ["exp_avg_sq", param_id, (size,), (size + 1,)],
            kinds=ValueError,
        )

    @case(2, 3, rows=(8,))
    def test_state_of_a_name_that_nobody_knows_has_another_shape(self, layout: str) -> None:
        recipe = self.recipe(optimizer="Momentum")
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe)
        param_id, shape = an_id_and_shape(subject)
        saved["state"][param_id]["momentum"] = torch.ones(99)
        mentions = ["momentum", param_id, shape, (99,)]
        self.must_refuse(subject, self.write(self.files(saved, layout)), mentions, kinds=ValueError)

    @case(2, 3, rows=(12,), layouts=is_torch, needs=[CUT_TENSORS])
    def test_collection_of_tensors_that_cannot_be_cut(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(ids=(0, 1))
        saved["state"][0]["history"] = [torch.ones(2), {"last": torch.ones(3)}]
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0, "history"], kinds=ValueError)

    @case(2, 3, rows=(12, 25), needs=[NO_ROWS_AND_COLUMNS])
    def test_moments_of_rows_and_columns_that_cannot_be_cut(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        saved["state"][0]["exp_avg_sq_row"] = torch.ones(subject.shapes[0][:-1])
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0, "exp_avg_sq_row"], kinds=ValueError)

    @case(2, rows=(8, 19))
    def test_all_problems_at_once(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        for param_id in (0, 2):
            saved["state"][param_id]["exp_avg"] = torch.ones(99)
        files = self.files(saved, layout)
        del files.groups[0]["betas"]
        self.must_refuse(subject, self.write(files), [(99,), "betas", 0, 2], kinds=ValueError)

    @case(2, 3, rows=(16,))
    def test_file_of_another_optimizer_class(self, layout: str) -> None:
        subject = self.trained()
        recipe = self.recipe(optimizer="SGD", options={"momentum": 0.9})
        saved = self.saved(recipe)
        self.must_refuse(subject, self.write(self.files(saved, layout)), ["betas", "eps"], kinds=ValueError)

    @pytest.mark.parametrize("key", ["lr", "betas", "eps", "weight_decay"])
    @case(2, 3, rows=(16,))
    def test_group_key_that_nothing_fills(self, layout: str, key: str) -> None:
        subject = self.trained()
        saved = self.saved()
        files = self.files(saved, layout)
        del files.groups[1][key]
        self.must_refuse(subject, self.write(files), [key], kinds=ValueError)

    @case(2, 3, rows=(20,))
    def test_id_in_no_group(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        saved["state"][77] = frozen(saved["state"][0])
        self.must_refuse(subject, self.write(self.files(saved, layout)), [77])

    @case(2, 3, rows=(20,), layouts=is_sharded)
    def test_id_in_no_group_in_a_shard_of_its_own(self, layout: str) -> None:
        # No rank has anything else to read in that file.
        subject = self.trained()
        saved = self.saved()
        saved["state"][77] = frozen(saved["state"][0])
        self.must_refuse(subject, self.write(self.files(saved, layout, shards=99)), [77])

    @case(2, 3, rows=(20,))
    def test_id_that_is_no_number(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        files = self.files(saved, layout)
        files.groups[0]["params"] = ["first", *files.groups[0]["params"][1:]]
        self.must_refuse(subject, self.write(files), ["first"])

    @case(2, 3, rows=(20,))
    def test_id_twice_in_the_groups(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        ids = saved["param_groups"][0]["params"]
        # Without state, the id that gives way is not missed.
        saved["state"].pop(ids[-1])
        files = self.files(saved, layout)
        files.groups[0]["params"] = [ids[0], *ids[:-1]]
        self.must_refuse(subject, self.write(files), [ids[0]])

    @case(2, 3, rows=(8,), layouts=is_torch)
    def test_state_that_is_no_mapping(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        saved["state"][0] = torch.ones(subject.shapes[0])
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0])

    @pytest.mark.parametrize("key", ["exp_avg", "step"])
    @case(2, 3, rows=(3,))
    def test_state_lacks_what_every_step_reads(self, layout: str, key: str) -> None:
        subject = self.trained()
        saved = self.saved()
        del saved["state"][0][key]
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0, key], kinds=ValueError)

    @pytest.mark.parametrize("key, value", [("step", torch.ones(3)), ("step", "three"), ("exp_avg", 0.5)])
    @case(2, 3, rows=(12,))
    def test_state_of_another_kind(self, layout: str, key: str, value: torch.Tensor | str | float) -> None:
        subject = self.trained()
        saved = self.saved()
        saved["state"][0][key] = value
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0, key], kinds=ValueError)

    @case(2, 3, rows=(12,), layouts=is_torch)
    def test_tensor_without_data(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        saved["state"][0]["exp_avg"] = saved["state"][0]["exp_avg"].to("meta")
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0, "exp_avg"], kinds=ValueError)

    @case(2, 3, rows=(7,), needs=[KEEPS_NAMES])
    def test_parameter_names_in_another_order(self, layout: str) -> None:
        recipe = self.recipe(shapes=((4, 3), (4, 3), (2, 3), (7,)), named=True)
        subject = self.trained(recipe=recipe)
        self.require("param_names" in subject.inner.param_groups[0], NO_NAMES)
        saved = self.saved(recipe)
        files = self.files(saved, layout)
        # The last ones: a rank that holds some of the parameters has fewer ids than its groups have names.
        names = files.groups[-1]["param_names"]
        files.groups[-1]["param_names"] = names[::-1]
        self.must_refuse(subject, self.write(files), names, kinds=ValueError)

    @case(1, rows=(7,), needs=[KEEPS_NAMES])
    def test_renamed_parameters(self, layout: str) -> None:
        recipe = self.recipe(named=True)
        subject = self.trained(recipe=recipe)
        self.require("param_names" in subject.inner.param_groups[0], NO_NAMES)
        saved = self.saved(recipe, ids=(0, 1))
        for group in saved["param_groups"]:
            group["param_names"] = [f"module.{name}" for name in group["param_names"]]
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(2, rows=(22,))
    def test_numpy_number_in_a_group(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        for group in files.groups:
            group["lr"] = numpy.float64(0.125)
        # Loading it and refusing it are both right, as long as all versions of torch do the same.
        if self.loads_numpy_numbers:
            self.must_replace(subject, {**self.saved(), "param_groups": files.groups}, self.write(files))
        else:
            self.must_refuse(subject, self.write(files), ["numpy"])

    @case(1, needs=[IDS_ARE_LABELS])
    def test_ids_are_labels(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(ids=(0, 1, 2))
        labels = {param_id: 10 * param_id + 5 for group in saved["param_groups"] for param_id in group["params"]}
        saved["state"] = {labels[param_id]: state for param_id, state in saved["state"].items()}
        for group in saved["param_groups"]:
            group["params"] = [labels[param_id] for param_id in group["params"]]
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))
