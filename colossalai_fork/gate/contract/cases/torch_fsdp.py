"""Cases that only FSDP's flat parameters can show."""

import os

import pytest
import torch

from ..base import case
from ..checkpoint_files import is_safetensors
from ..fsdp_units import Wrapping
from ..needs import ANOTHER_RANK
from ..subjects import Subject
from .unmodified_files import UnmodifiedFilesCases


class FlatParameterCases(UnmodifiedFilesCases):
    """Several parameters that are flattened into one, whose state they share."""

    def trained_together(self) -> Subject:
        """A subject whose first two parameters are one flat parameter, and the others another.

        Returns:
            Subject: the subject.
        """
        return self.trained_in(Wrapping(units=((0, 1), (2, 3))))

    @case(1, rows=(1, 25))
    def test_flattened_together(self, layout: str) -> None:
        subject = self.trained_together()
        for seed, ids in ((3, None), (4, (2, 3)), (5, (0, 1))):
            saved = self.saved(ids=ids, seed=seed)
            self.must_replace(subject, saved, self.write(self.files(saved, layout), f"checkpoint-{seed}"))

    @pytest.mark.parametrize("missing", [0, 1])
    @case(2, 3, rows=(1,))
    def test_part_of_a_flat_parameter(self, layout: str, missing: int) -> None:
        subject = self.trained_together()
        saved = self.saved(ids=tuple(each for each in subject.shapes if each != missing))
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0, 1], kinds=ValueError)

    @pytest.mark.parametrize("key", ["max_exp_avg_sq", "count"])
    @case(2, 3, rows=(3,))
    def test_key_of_a_part_of_a_flat_parameter(self, layout: str, key: str) -> None:
        # Keys that a parameter of its own may lack.
        subject = self.trained_together()
        saved = self.saved(self.recipe(options={"amsgrad": True}))
        for param_id, state in saved["state"].items():
            state["count"] = 3
            if param_id == 1:
                del state[key]
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0, 1, key], kinds=ValueError)

    @case(2, 3)
    def test_parts_of_a_flat_parameter_that_have_taken_other_steps(self, layout: str) -> None:
        subject = self.trained_together()
        saved = self.saved()
        saved["state"][1]["step"] = torch.tensor(9.0)
        self.must_refuse(subject, self.write(self.files(saved, layout)), [0, 1, "step"], kinds=ValueError)

    @case(2, 3, rows=(8,))
    def test_state_of_a_part_has_another_shape(self, layout: str) -> None:
        subject = self.trained_together()
        saved = self.saved()
        saved["state"][1]["exp_avg"] = torch.ones(99)
        mentions = ["exp_avg", 1, subject.shapes[1], (99,)]
        self.must_refuse(subject, self.write(self.files(saved, layout)), mentions, kinds=ValueError)

    @case(1, rows=(12,))
    def test_parts_in_different_precision(self, layout: str) -> None:
        subject = self.trained_together()
        saved = self.saved()
        saved["state"][1]["exp_avg"] = saved["state"][1]["exp_avg"].to(torch.bfloat16)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(12,))
    def test_steps_in_another_precision_than_their_moments(self, layout: str) -> None:
        recipe = self.recipe(dtype=torch.bfloat16)
        subject = self.trained_in(Wrapping(units=((0, 1), (2, 3))), recipe)
        saved = self.saved(recipe)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    def trained_with_settings_for_saving(self) -> Subject:
        """A subject whose user saves on rank 0 alone.

        Returns:
            Subject: the subject.
        """
        from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import StateDictType

        subject = self.trained()
        configs = FullStateDictConfig(rank0_only=True), FullOptimStateDictConfig(rank0_only=True)
        FSDP.set_state_dict_type(subject.model.unwrap(), StateDictType.FULL_STATE_DICT, *configs)
        return subject

    @case(1, 3)
    def test_settings_for_saving_do_not_count(self, layout: str) -> None:
        subject = self.trained_with_settings_for_saving()
        saved = self.saved(ids=(0, 2))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(3, deadline=30.0, hangs=True, needs=[ANOTHER_RANK])
    def test_settings_for_saving_and_a_rank_that_fails(self, layout: str) -> None:
        subject = self.trained_with_settings_for_saving()
        path = self.write(self.files(self.saved(), layout))
        failing = self.world_size - 1
        self.must_refuse(subject, os.path.join(path, "gone") if self.rank == failing else path, ["gone"], (failing,))

    @case(1, layouts=lambda layout: not is_safetensors(layout))
    def test_optimizer_that_the_plugin_has_made(self, layout: str) -> None:
        recipe = self.recipe(groups=((0, 1, 2, 3),), rates=(0.01,))
        subject = self.trained_in(Wrapping(by_plugin=True), recipe)
        saved = self.saved(recipe)
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(1, rows=(1, 25))
    def test_original_parameters_are_kept(self, layout: str) -> None:
        subject = self.trained_in(Wrapping(keeps_originals=True))
        for seed, ids in ((3, None), (4, (1, 2))):
            saved = self.saved(ids=ids, seed=seed)
            self.must_replace(subject, saved, self.write(self.files(saved, layout), f"checkpoint-{seed}"))

    @case(1, rows=(17,))
    def test_module_that_fsdp_ignores(self, layout: str) -> None:
        subject = self.trained_in(Wrapping(ignored=(1,)))
        saved = self.saved(ids=(0, 1))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))
