"""Contract points 1, 2 and 3 for optimizers that gather and take back their state themselves."""

import torch

from ..base import ContractBase, case
from ..comparison import differences, look_at


def torch_cuts_for_itself(contract, arguments):
    """Unmodified ColossalAI cuts a state dict and hands it to torch, but merges it where the optimizer is Gemini's.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    return "what is cut is handed to torch, which replaces the state" if contract.replaces_entries else None


class StateDictCases(ContractBase):
    """``state_dict`` and ``load_state_dict`` of the boosted optimizer.

    Attributes:
        whole_state_dict (dict): arguments of ``state_dict`` with which every rank gets the whole state.
    """

    whole_state_dict = {}

    @case(1, rows=(9, 13), guard=torch_cuts_for_itself)
    def test_state_dict_into_another_optimizer(self):
        source, subject = self.trained(seed=1, steps=3), self.trained(seed=2)
        state_dict = source.optimizer.state_dict(**self.whole_state_dict)
        del state_dict["state"][1]
        twin = self.native_twin(subject, state_dict)
        subject.optimizer.load_state_dict(state_dict)
        self.must_equal(subject, twin)

    @case(2, 3)
    def test_state_dict_of_another_optimizer(self):
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
