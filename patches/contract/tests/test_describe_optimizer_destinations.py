from collections import defaultdict, deque

import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.containers import leaves, mapped
from colossalai.checkpoint_io.optimizer_restore.destination import Destination
from colossalai.checkpoint_io.optimizer_restore.state_kinds import is_scalar, required_state


def build(*sizes):
    return torch.optim.Adam([{"params": [torch.nn.Parameter(torch.ones(2, 3)) for _ in range(size)]} for size in sizes])


def test_groups_of_the_same_sizes_are_chosen():
    destination, problems = Destination(build(2, 1)), []
    saved = build(2, 1).state_dict()["param_groups"]
    assert destination.local_groups(saved, "the file", problems) == saved and not problems
    assert destination.placement(destination.param_groups[0]["params"][0]).local_shape == (2, 3)


@pytest.mark.parametrize("sizes", [(3,), (1, 2), (2, 1, 1)])
def test_other_groups_are_a_problem(sizes):
    problems = []
    saved = build(*sizes).state_dict()["param_groups"]
    assert Destination(build(2, 1)).local_groups(saved, "the file", problems) is None
    assert problems


def test_looking_makes_no_state():
    optimizer = build(1)
    assert Destination(optimizer).state_of(optimizer.param_groups[0]["params"][0]) == {}
    assert not optimizer.state


def test_one_number_belongs_to_the_parameter_as_a_whole():
    assert is_scalar("step", torch.tensor(3.0)) and is_scalar("mu_product", torch.tensor(0.5)) and is_scalar("any", 3)
    assert not is_scalar("exp_avg", torch.ones(3))
    assert required_state(torch.optim.Adam) == ("step", "exp_avg", "exp_avg_sq")


def test_containers_are_mapped_to_their_own_classes():
    value = defaultdict(list, a=[1, (2, 3)], b=deque([4]))
    found = mapped(value, lambda leaf: leaf + 1)
    assert list(leaves(found)) == [2, 3, 4, 5]
    assert type(found) is defaultdict and type(found["b"]) is deque and found["c"] == []
    assert list(leaves(value)) == [1, 2, 3, 4]
