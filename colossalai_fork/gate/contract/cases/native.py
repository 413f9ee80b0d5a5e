"""Contract point 1, the finer parts: what torch's own loading calls and accepts is called and accepted."""

import os
from typing import Any, Callable

import pytest
import torch

from ..base import ContractBase, case
from ..checkpoint_files import is_safetensors, is_torch
from ..comparison import differences, frozen, look_at
from ..needs import FIRES_HOOKS, IDS_ARE_LABELS, KEEPS_NAMES, NO_NAMES, WHOLE_TENSORS, Need
from ..subjects import Subject

TAKES_THE_OPTIMIZER = Need(
    "the class cannot use this optimizer",
    lambda contract, arguments: contract.whole_optimizers or arguments["name"] not in ("LBFGS", "Adafactor", "Adagrad"),
)
EMPTY_GROUPS = Need("the class's optimizers have no empty groups", lambda contract, _: contract.allows_empty_groups)


class NativeCases(ContractBase):
    """Hooks, subclasses with loading of their own, and unusual but legal states."""

    def _register_hooks(self, subject: Subject) -> list[str]:
        calls = []
        subject.inner.register_load_state_dict_pre_hook(lambda *arguments: calls.append("pre"))
        subject.inner.register_load_state_dict_post_hook(lambda *arguments: calls.append("post"))
        return calls

    @case(1, rows=(28,), needs=[FIRES_HOOKS])
    def test_hooks_fire_once(self, layout: str) -> None:
        subject = self.trained()
        calls = self._register_hooks(subject)
        saved = self.saved(ids=(0, 1))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))
        self.verdict([] if calls == ["pre", "post"] else [f"hooks that fired: {calls}, expected one pre and one post"])

    @case(1, 2, rows=(28,), needs=[FIRES_HOOKS])
    def test_no_post_hook_after_a_refusal(self, layout: str) -> None:
        subject = self.trained()
        calls = self._register_hooks(subject)
        saved = self.saved()
        saved["state"][0]["exp_avg"] = torch.ones(99)
        path = self.write(self.files(saved, layout))
        error = self.load(subject, path)
        problems = ["a checkpoint that cannot be right was accepted"] if error is None else []
        self.verdict(problems + (["a post hook fired after a refusal"] if "post" in calls else []))

    @case(1, rows=(28,), needs=[FIRES_HOOKS])
    def test_hook_that_changes_the_state_dict(self, layout: str) -> None:
        subject = self.trained()

        def halve_rates(optimizer: torch.optim.Optimizer | None, state_dict: dict[str, Any]) -> dict[str, Any]:
            groups = [{**group, "lr": group["lr"] / 2} for group in state_dict["param_groups"]]
            return {**state_dict, "param_groups": groups}

        subject.inner.register_load_state_dict_pre_hook(halve_rates)
        saved = self.saved(ids=(0, 1, 3))
        path = self.write(self.files(saved, layout))
        self.must_replace(subject, halve_rates(None, saved), path)

    @case(1, rows=(28,), needs=[FIRES_HOOKS])
    def test_pre_hooks_run_in_order(self, layout: str) -> None:
        subject = self.trained()

        def changed(state_dict: dict[str, Any], change: Callable[[float], float]) -> dict[str, Any]:
            groups = [{**group, "lr": change(group["lr"])} for group in state_dict["param_groups"]]
            return {**state_dict, "param_groups": groups}

        changes = (lambda rate: rate / 2, lambda rate: rate + 1)
        for change in changes:
            subject.inner.register_load_state_dict_pre_hook(lambda _, state, change=change: changed(state, change))
        saved = self.saved(ids=(0, 1, 3))
        path = self.write(self.files(saved, layout))
        self.must_replace(subject, changed(changed(saved, changes[0]), changes[1]), path)

    def _one_file_of(
        self,
        optimizer: torch.optim.Optimizer,
        change: Callable[[dict[str, Any]], dict[str, Any]] = lambda state_dict: state_dict,
    ) -> str:
        path = os.path.join(self.directory, "own.bin")
        if self.rank == 0:
            torch.save(change(optimizer.state_dict()), path)
        self.everyone(None)
        return path

    def _with_own_layout(self, seed: int) -> Subject:
        return self.trained(seed, self.recipe(optimizer="KeepsItsOwnLayout"))

    @case(1, layouts=lambda layout: layout == "torch-one-file", needs=[WHOLE_TENSORS, IDS_ARE_LABELS])
    def test_layout_of_the_optimizers_own(self, layout: str) -> None:
        source, subject = self._with_own_layout(1), self._with_own_layout(2)
        expected = frozen(source.inner.state_dict())
        self.must_load(subject, self._one_file_of(source.inner))
        problems = differences(expected, frozen(subject.inner.state_dict()), "")
        self.verdict(problems + differences(7, subject.inner.count, "what the file has beside state"))

    @case(3, 4, layouts=lambda layout: layout == "torch-one-file", needs=[WHOLE_TENSORS, IDS_ARE_LABELS])
    def test_layout_of_the_optimizers_own_that_does_not_fit(self, layout: str) -> None:
        subject = self._with_own_layout(1)

        def spoilt(state_dict: dict[str, Any]) -> dict[str, Any]:
            return {**state_dict, "rates": [1.0, 1.0], "momenta": [*state_dict["momenta"][:-1], torch.ones(99)]}

        before = look_at(subject.inner)
        error = self.load(subject, self._one_file_of(subject.inner, spoilt))
        problems = differences(before, look_at(subject.inner), "after the refusal, ")
        if not isinstance(error, (ValueError, RuntimeError)) or "(99,)" not in str(error):
            problems.append(f"the optimizer's own reason was not raised: {error!r}")
        self.verdict(problems)

    @case(1, layouts=lambda layout: layout == "torch-one-file", needs=[WHOLE_TENSORS, IDS_ARE_LABELS])
    def test_what_a_file_holds_beside_state_and_groups(self, layout: str) -> None:
        recipe = self.recipe(optimizer="SavesMore")
        source, subject = self.trained(1, recipe), self.trained(2, recipe)
        saved = frozen(source.inner.state_dict())
        path = self._one_file_of(source.inner)
        self.must_replace(subject, saved, path)
        self.verdict(differences(saved["seen"], subject.inner.seen, "what the file has beside state"))

    @case(1)
    def test_loading_of_a_subclass(self, layout: str) -> None:
        recipe = self.recipe(optimizer="LoadsItsOwnWay")
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe, ids=(0, 2))
        for group in saved["param_groups"]:
            group.pop("filled by __setstate__", None)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, needs=[KEEPS_NAMES])
    def test_names_of_parameters(self, layout: str) -> None:
        recipe = self.recipe(named=True)
        subject = self.trained(recipe=recipe)
        self.require("param_names" in subject.inner.param_groups[0], NO_NAMES)
        # Files of an older torch have no names; the optimizer keeps its own.
        saved = self.saved(self.recipe(), ids=(0, 2))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, layouts=is_torch)
    def test_state_of_the_optimizer_itself(self, layout: str) -> None:
        subject = self.trained()
        subject.inner.state["from before"] = 3
        saved = self.saved(ids=(0, 1))
        saved["state"]["global"] = {"seen": torch.arange(3), "name": 4}
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, layouts=is_torch, needs=[WHOLE_TENSORS])
    def test_collection_of_tensors(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(ids=(0, 1))
        saved["state"][0]["history"] = [torch.ones(2), {"last": torch.ones(3)}]
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @pytest.mark.parametrize("name", ["LBFGS", "Adafactor", "SGD", "Adagrad", "Rprop", "RMSprop"])
    @case(1, needs=[TAKES_THE_OPTIMIZER])
    def test_optimizers_with_other_state(self, layout: str, name: str) -> None:
        self.require(hasattr(torch.optim, name), "this torch has no such optimizer")
        # LBFGS takes one group only.
        one_group = {"groups": ((0, 1, 2, 3),), "rates": (0.01,)} if name == "LBFGS" else {}
        options = {"SGD": {"momentum": 0.9}, "LBFGS": {"max_iter": 2}, "RMSprop": {"momentum": 0.9}}.get(name, {})
        recipe = self.recipe(optimizer=name, options=options, **one_group)
        subject = self.build(recipe=recipe)
        if name != "LBFGS":
            subject.train(1, None)
        saved = self.saved(recipe, ids=None if name in ("LBFGS", "Adagrad") else (0, 2))
        expected = frozen(saved)
        if is_safetensors(layout):
            for param_id, state in list(expected["state"].items()):
                expected["state"][param_id] = {key: value for key, value in state.items() if value is not None}
                if not expected["state"][param_id]:
                    del expected["state"][param_id]
        self.must_replace(subject, expected, self.write(self.files(saved, layout)))

    @case(1, rows=(25,))
    def test_small_and_empty_parameters(self, layout: str) -> None:
        smallest = () if self.cuts else ((0,), (0, 3))
        recipe = self.recipe(shapes=((7,), (1,), (), (1, 1), *smallest), groups=self._groups(4 + len(smallest)))
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe, ids=tuple(range(1, len(recipe.shapes))))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, needs=[EMPTY_GROUPS])
    def test_group_without_parameters(self, layout: str) -> None:
        recipe = self.recipe(groups=((0, 1), (), (2, 3)), rates=(0.01, 0.02, 0.03))
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe, ids=(3,))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    def _groups(self, count: int) -> tuple[tuple[int, ...], ...]:
        return (tuple(range(2)), tuple(range(2, count)))
