"""Cases that only Gemini's optimizer can show."""

from ..base import case
from ..checkpoint_files import is_safetensors, is_sharded
from ..comparison import differences
from .state_dicts import StateDictCases
from .unmodified_files import UnmodifiedFilesCases


class GeminiCases(StateDictCases, UnmodifiedFilesCases):
    """State that saving makes, groups that hold nothing, parameters in no chunk."""

    @case(1, rows=(2, 5), layouts=lambda layout: not is_safetensors(layout))
    def test_entries_that_hold_nothing(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(steps=0)
        saved["state"] = {param_id: {} for param_id in subject.shapes}
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))

    @case(2, 3, rows=(6,))
    def test_no_groups(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        files.groups = []
        self.must_refuse(subject, self.write(files), ["group"], kinds=ValueError)

    @case(2, 3, rows=(6,))
    def test_groups_without_parameters(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        files.groups = [{**group, "params": []} for group in files.groups]
        self.must_refuse(subject, self.write(files), ["group"], kinds=ValueError)

    @case(1, rows=(17,))
    def test_parameter_that_was_frozen_when_boosted(self) -> None:
        source, subject = (self.trained(seed=each, recipe=self.recipe(options={"frozen": (1,)})) for each in (1, 2))
        self._goes_on_alike(source, subject, self.save(source))

    @case(1, rows=(26,), layouts=is_sharded)
    def test_training_goes_on(self, layout: str) -> None:
        # Between loading and the next step Gemini moves stand-ins and chunks about; the state must fit them.
        subject = self.trained()
        self.must_load(subject, self.write(self.files(self.saved(ids=(0, 2)), layout)))
        subject.train(5, None)
        stand_ins = subject.optimizer.id_to_fake_params
        steps = {each: subject.inner.state[stand_in]["step"] for each, stand_in in stand_ins.items()}
        expected = {each: 4 if each in (0, 2) else 1 for each in stand_ins}
        self.verdict(differences(expected, steps, "steps after one more step"))
