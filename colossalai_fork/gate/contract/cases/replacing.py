"""Contract point 1: what was saved replaces what was there, as torch's own loading would have it."""

import dataclasses

import torch

from ..base import ContractBase, case
from ..checkpoint_files import is_safetensors
from ..comparison import frozen
from ..needs import ROWS_AND_COLUMNS


class ReplacingCases(ContractBase):
    """Partial, empty and full checkpoints over an optimizer that has trained."""

    @case(1, rows=(1, 4))
    def test_parameter_without_saved_state_has_none(self, layout: str) -> None:
        subject = self.trained()
        ids = tuple(each for each in subject.shapes if each != 1)
        saved = self.saved(ids=ids)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(2,))
    def test_empty_checkpoint_leaves_no_state(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(steps=0)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(3,))
    def test_key_that_was_not_saved_is_gone(self, layout: str) -> None:
        recipe = self.recipe(options={"amsgrad": True})
        subject = self.trained(recipe=recipe)
        saved = self.saved()
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(3,))
    def test_key_of_a_parameter_without_saved_state_is_gone(self, layout: str) -> None:
        subject = self.trained(recipe=self.recipe(options={"amsgrad": True}))
        saved = self.saved(ids=tuple(subject.shapes)[:1])
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(5,))
    def test_saved_empty_entry(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        saved["state"][0] = {}
        if is_safetensors(layout):
            # An entry without keys leaves no trace there, which is legal.
            expected = {**saved, "state": {key: value for key, value in saved["state"].items() if value}}
        else:
            expected = saved
        self.must_replace(subject, expected, self.write(self.files(saved, layout)))

    @case(1)
    def test_full_checkpoint(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        self.must_replace(subject, saved, self.write(self.files(saved, layout, shards=3)))

    @case(1)
    def test_full_checkpoint_into_a_fresh_optimizer(self, layout: str) -> None:
        subject = self.build()
        saved = self.saved()
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(1,))
    def test_index_file_instead_of_directory(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(ids=(0, 2))
        files = self.files(saved, layout)
        path = self.write(files)
        if path != f"{self.directory}/checkpoint/{files.one_file_name}":
            path = f"{path}/{files.index_name}"
        self.must_replace(subject, saved, path)

    @case(1, 4)
    def test_read_into_host_memory_first(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(ids=(0, 1, 3))
        path = self.write(self.files(saved, layout, shards=3))
        self.must_replace(subject, saved, path, low_cpu_mem_mode=False, num_threads=2)

    @case(1)
    def test_one_load_after_another(self, layout: str) -> None:
        subject = self.trained()
        for seed, ids in ((3, (0, 1)), (4, (1, 2)), (5, None)):
            saved = self.saved(seed=seed, ids=ids)
            self.must_replace(subject, saved, self.write(self.files(saved, layout), f"checkpoint-{seed}"))

    @case(1, rows=(17,))
    def test_frozen_parameter(self, layout: str) -> None:
        subject = self.trained()
        for number, parameter in enumerate(subject.model.parameters()):
            parameter.requires_grad_(number != 0)
        saved = self.saved(ids=(0,))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(18,))
    def test_only_adapters_have_state(self, layout: str) -> None:
        subject = self.build()
        adapters = tuple(subject.shapes)[1::2]
        subject.train(1, adapters)
        subject.train(2, None)
        saved = self.saved(ids=adapters)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(21,))
    def test_index_decides_over_files_of_an_earlier_save(self, layout: str) -> None:
        subject = self.trained()
        earlier = self.files(self.saved(seed=3), layout, shards=4)
        self.write(earlier)
        saved = self.saved(seed=4, ids=(0, 3))
        self.must_replace(subject, saved, self.write(self.files(saved, layout, shards=1)))

    @case(1, rows=(12,))
    def test_every_kind_of_state(self, layout: str) -> None:
        recipe = self.recipe(optimizer="EveryKindOfState")
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe, ids=(0, 1))
        files = self.files(saved, layout)
        if is_safetensors(layout):
            saved = frozen(saved)
            for state in saved["state"].values():
                del state["absent"]
        self.must_replace(subject, saved, self.write(files))

    @case(1, rows=(11,))
    def test_scalar_state(self, layout: str) -> None:
        for name in ("NAdam", "ASGD"):
            recipe = self.recipe(optimizer=name)
            subject = self.trained(recipe=recipe)
            saved = self.saved(recipe, ids=(1, 2))
            self.must_replace(subject, saved, self.write(self.files(saved, layout), name))

    @case(1, rows=(11,))
    def test_scalar_state_of_a_number(self, layout: str) -> None:
        for name in ("NAdam", "ASGD"):
            recipe = self.recipe(optimizer=name, shapes=((7,), (), (4, 3), ()), groups=((0, 1), (2, 3)))
            subject = self.trained(recipe=recipe)
            saved = self.saved(recipe, ids=(1, 2))
            self.must_replace(subject, saved, self.write(self.files(saved, layout), name))

    @case(1, rows=(12, 25), needs=[ROWS_AND_COLUMNS])
    def test_moments_of_rows_and_columns(self, layout: str) -> None:
        recipe = self.recipe(optimizer="RowsAndColumns", shapes=((4, 3), (5,), (3, 4), (3, 5, 4)))
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe, ids=(0, 1, 3))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(12,))
    def test_moments_in_another_precision(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(ids=(0, 2))
        for number, state in enumerate(saved["state"].values()):
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = state[key].to((torch.float64, torch.bfloat16)[number % 2])
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(12,))
    def test_parameters_of_half_precision(self, layout: str) -> None:
        # The step counter stays float32 where moments take the precision of their parameter.
        recipe = self.recipe(dtype=torch.bfloat16)
        subject = self.trained(recipe=recipe)
        saved = self.saved(ids=(0, 2))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(9,))
    def test_integer_step(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(ids=(0, 1))
        for state in saved["state"].values():
            state["step"] = 7
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(14,))
    def test_group_keys_that_older_torch_did_not_save(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        for group in saved["param_groups"]:
            for key in ("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"):
                group.pop(key, None)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1)
    def test_group_keys_that_this_torch_does_not_know(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        for group in saved["param_groups"]:
            group["initial_lr"] = 0.5
            group["from the future"] = {"nested": [1, 2.5, None]}
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1)
    def test_learning_rate_as_a_tensor(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        for group in saved["param_groups"]:
            group["lr"] = torch.tensor(group["lr"])
        self.must_replace(subject, saved, self.write(self.files(saved, layout)), step=False)

    @case(1)
    def test_option_that_was_not_saved_is_gone(self, layout: str) -> None:
        subject = self.trained()
        for group in subject.inner.param_groups:
            group["only here"] = 1
        saved = self.saved()
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1)
    def test_saved_options_win(self, layout: str) -> None:
        # Over those that the optimizer was built with, and over those that its plugin has added.
        subject = self.trained()
        saved = self.saved()
        for group in saved["param_groups"]:
            group.update({key: not group[key] for key in ("maximize", "bias_correction") if key in group})
            group.update(betas=(0.8, 0.99), weight_decay=0.25)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(15,))
    def test_file_of_adam_into_adamw(self, layout: str) -> None:
        recipe = self.recipe(optimizer="AdamW", options={"weight_decay": 0.1})
        subject = self.trained(recipe=recipe)
        saved = self.saved(dataclasses.replace(recipe, optimizer="Adam"), ids=(0, 1, 2))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1)
    def test_text_stays_text(self, layout: str) -> None:
        recipe = self.recipe(optimizer="Momentum")
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe)
        twin = self.native_twin(subject, saved)
        for state in saved["state"].values():
            state["note"] = "a text"
        self.must_load(subject, self.write(self.files(saved, layout)))
        notes = [state.pop("note", None) for state in subject.inner.state.values()]
        self.verdict([] if notes == ["a text"] * len(notes) else [f"the text was loaded as {notes}"])
        self.must_equal(subject, twin)
