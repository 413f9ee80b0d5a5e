from copy import deepcopy

import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.destination import Destination
from colossalai.checkpoint_io.optimizer_restore.files.saved_state import in_memory
from colossalai.checkpoint_io.optimizer_restore.validation import validate


def trained(optimizer_class=torch.optim.Adam, shape=(3, 5), **options):
    params = [torch.nn.Parameter(torch.ones(shape)) for _ in range(3)]
    optimizer = optimizer_class([{"params": params[:2]}, {"params": params[2:]}], **options)
    for param in params:
        param.grad = torch.ones(shape)
    optimizer.step()
    return optimizer


def problems_of(state_dict, optimizer):
    before, problems = deepcopy(optimizer.state_dict()), []
    plan = validate(in_memory(state_dict), Destination(optimizer), problems)
    assert str(optimizer.state_dict()) == str(before)
    assert problems or len(plan.targets) == 3
    return [str(problem) for problem in problems]


@pytest.mark.parametrize("optimizer_class", ["Adam", "AdamW", "SGD", "NAdam", "ASGD", "Adagrad", "RMSprop", "Rprop"])
def test_what_fits_passes(optimizer_class):
    optimizer_class = getattr(torch.optim, optimizer_class)
    options = {"lr": 0.1} if optimizer_class is torch.optim.SGD else {}
    assert problems_of(trained(optimizer_class, **options).state_dict(), trained(optimizer_class, **options)) == []


def test_groups_of_older_versions_pass():
    state_dict = trained().state_dict()
    for group in state_dict["param_groups"]:
        for key in ("maximize", "foreach", "capturable", "differentiable", "fused"):
            group.pop(key, None)
    assert problems_of(state_dict, trained()) == []


def test_another_optimizer_is_refused():
    problems = problems_of(trained(torch.optim.SGD, lr=0.1).state_dict(), trained())
    assert any("betas" in problem for problem in problems)


@pytest.mark.parametrize("shape", [(5, 3), (15,), (3, 6)])
def test_other_shapes_are_refused(shape):
    problems = problems_of(trained(shape=shape).state_dict(), trained())
    assert len(problems) == 6 and all(str(shape) in problem and "(3, 5)" in problem for problem in problems)


def test_all_problems_are_collected():
    state_dict = trained().state_dict()
    state_dict["state"][7] = state_dict["state"][0]
    state_dict["state"][1] = [1]
    del state_dict["state"][2]["exp_avg_sq"]
    problems = problems_of(state_dict, trained())
    assert len(problems) == 3 and "exp_avg_sq" in " ".join(problems)
