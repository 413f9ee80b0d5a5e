"""Cases that only Gemini's optimizer can show."""

import torch

from .cases_unmodified_files import UnmodifiedFilesCases
from .checkpoint_files import is_safetensors, is_sharded
from .contract_base import case
from .observation import differences, look_at


class GeminiCases(UnmodifiedFilesCases):
    """State that saving makes, groups that hold nothing, parameters in no chunk."""

    @case(1, rows=(2,))
    def test_saving_makes_no_state(self):
        subject = self.build()
        self.save(subject, "sharded")
        self.save(subject, "one-file", shard=False)
        entries = len(subject.inner.state)
        self.verdict([f"saving made {entries} entries of state"] if entries else [])

    @case(1, rows=(2, 5), layouts=lambda layout: not is_safetensors(layout))
    def test_entries_that_hold_nothing(self, layout):
        subject = self.trained()
        saved = self.saved(steps=0)
        saved["state"] = {param_id: {} for param_id in subject.shapes}
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(2, 3, rows=(6,))
    def test_no_groups(self, layout):
        subject = self.trained()
        files = self.files(self.saved(), layout)
        files.groups = []
        self.must_refuse(subject, self.write(files), ["group"], kinds=ValueError)

    @case(2, 3, rows=(6,))
    def test_groups_without_parameters(self, layout):
        subject = self.trained()
        files = self.files(self.saved(), layout)
        files.groups = [{**group, "params": []} for group in files.groups]
        self.must_refuse(subject, self.write(files), ["group"], kinds=ValueError)

    @case(1, rows=(9, 13))
    def test_state_dict_into_another_optimizer(self):
        source, subject = self.trained(seed=1, steps=3), self.trained(seed=2)
        state_dict = source.optimizer.state_dict(only_rank_0=False)
        del state_dict["state"][1]
        twin = self.native_twin(subject, state_dict)
        subject.optimizer.load_state_dict(state_dict)
        self.must_equal(subject, twin)

    @case(2, 3)
    def test_state_dict_of_another_optimizer(self):
        subject = self.trained()
        state_dict = subject.optimizer.state_dict(only_rank_0=False)
        if self.rank == 0:
            state_dict["state"][0]["exp_avg"] = torch.ones(99)
        before, error = look_at(subject.inner), None
        try:
            subject.optimizer.load_state_dict(state_dict)
        except ValueError as raised:
            error = raised
        problems = [] if error is not None else ["a state dict that cannot be right was accepted"]
        self.verdict(problems + differences(before, look_at(subject.inner), "after the refusal, "))

    @case(1, rows=(17,))
    def test_parameter_that_was_frozen_when_boosted(self):
        source, subject = (self.trained(seed=each, recipe=self.recipe(options={"frozen": (1,)})) for each in (1, 2))
        self._goes_on_alike(source, subject, self.save(source))

    @case(1, rows=(26,), layouts=is_sharded)
    def test_training_goes_on(self, layout):
        # Between loading and the next step Gemini moves stand-ins and chunks about; the state must fit them.
        subject = self.trained()
        self.must_load(subject, self.write(self.files(self.saved(ids=(0, 2)), layout)))
        subject.train(5, None)
        stand_ins = subject.optimizer.id_to_fake_params
        steps = {each: subject.inner.state[stand_in]["step"] for each, stand_in in stand_ins.items()}
        expected = {each: 4 if each in (0, 2) else 1 for each in stand_ins}
        self.verdict(differences(expected, steps, "steps after one more step"))
