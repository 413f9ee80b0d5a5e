"""What the gate takes for the same state, and what not."""

import pytest
import torch

from colossalai_fork.gate.contract.comparison import differences

NOT_A_NUMBER = float("nan")


@pytest.mark.parametrize(
    "one, other",
    [
        (torch.tensor([NOT_A_NUMBER]), torch.tensor([NOT_A_NUMBER])),
        (torch.ones(3)[::2][:1], torch.ones(1)),
        (torch.arange(6.0).view(2, 3).t(), torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])),
        (torch.empty(0), torch.empty(0)),
        (torch.tensor(1.0), torch.tensor(1.0)),
        (NOT_A_NUMBER, NOT_A_NUMBER),
    ],
)
def test_same(one, other):
    assert not differences({"state": one}, {"state": other})


@pytest.mark.parametrize(
    "one, other",
    [
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.ones(3)[::2][:1], torch.zeros(1)),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.ones(1), 1.0),
        (0.0, -0.0),
    ],
)
def test_different(one, other):
    assert differences({"state": one}, {"state": other})
