"""Contract points 1, 2 and 3 for optimizers that gather and take back their state themselves."""

import torch

from ..base import ContractBase, case
from ..comparison import differences, frozen, look_at


class StateDictCases(ContractBase):
    """``state_dict`` and ``load_state_dict`` of the boosted optimizer.

    Attributes:
        whole_state_dict (dict): arguments of ``state_dict`` with which every rank gets the whole state.
    """

    whole_state_dict = {}

    @case(1, rows=(9, 13))
    def test_state_dict_into_another_optimizer(self) -> None:
        source, subject = self.trained(seed=1, steps=3), self.trained(seed=2)
        state_dict = source.optimizer.state_dict(**self.whole_state_dict)
        del state_dict["state"][1]
        twin = self.native_twin(subject, state_dict)
        subject.optimizer.load_state_dict(state_dict)
        self.must_equal(subject, twin)

    @case(2, 3)
    def test_state_dict_of_another_optimizer(self) -> None:
        subject = self.trained()
        state_dict = subject.optimizer.state_dict(**self.whole_state_dict)
        if self.rank == 0:
            state_dict["state"][0]["exp_avg"] = torch.ones(99)
        before, error = look_at(subject.inner), None
        try:
            subject.optimizer.load_state_dict(state_dict)
        except ValueError as raised:
            error = raised
        problems = [] if error is not None else ["a state dict that cannot be right was accepted"]
        self.verdict(problems + differences(before, look_at(subject.inner), "after the refusal, "))

    @case(10)
    def test_state_dict_stays_what_it_was(self) -> None:
        subject = self.trained()
        state_dict = subject.optimizer.state_dict(**self.whole_state_dict)
        before = frozen(state_dict)
        subject.train(5, None)
        self.verdict(differences(before, frozen(state_dict), "after one more step, what state_dict() returned: "))
