import os
from copy import deepcopy
from pathlib import Path

import colossalai
import pytest
import torch
from colossalai.accelerator import CpuAccelerator
from colossalai.booster.plugin.low_level_zero_plugin import LowLevelZeroCheckpointIO
from colossalai.booster.plugin.torch_ddp_plugin import TorchDDPCheckpointIO
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.interface import OptimizerWrapper
from colossalai.testing import check_state_dict_equal, rerun_if_address_is_in_use, spawn
from colossalai.zero.low_level import LowLevelZeroOptimizer
from torch.optim import SGD, Adam
from utils import shared_tempdir

# These tests need no accelerator.


def build(optimizer_class=SGD, with_gradient=(0, 1, 2), steps=0, **kwargs):
    params = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    optimizer = optimizer_class(params, **kwargs)
    for _ in range(steps):
        for index in with_gradient:
            params[index].grad = torch.ones(4)
        optimizer.step()
    return params, optimizer


def save(optimizer, path):
    # a limit of 0 MB gives each parameter a shard of its own
    GeneralCheckpointIO().save_optimizer(optimizer, str(path), shard=True, size_per_shard=0)
    return str(path)


def test_state_from_before_the_first_step(tmp_path):
    _, never_stepped = build(lr=0.1, momentum=0.9)
    checkpoint = save(never_stepped, tmp_path / "optimizer")
    params, optimizer = build(lr=0.1, momentum=0.9, steps=1)
    with torch.no_grad():
        params[0].fill_(1.0)

    GeneralCheckpointIO().load_optimizer(optimizer, checkpoint)

    assert not optimizer.state
    optimizer.step()
    torch.testing.assert_close(params[0], torch.full((4,), 0.9))


@pytest.mark.parametrize("optimizer_class, kwargs", [(SGD, {"momentum": 0.9}), (Adam, {"amsgrad": True})])
def test_only_saved_state_is_left(tmp_path, monkeypatch, optimizer_class, kwargs):
    # a CPU has nothing to wait for
    monkeypatch.setattr(CpuAccelerator, "synchronize", lambda self, device=None: None)
    _, saved = build(optimizer_class, with_gradient=(1,), steps=1, lr=0.5, **kwargs)
    checkpoint = save(saved, tmp_path / "optimizer")
    params, optimizer = build(optimizer_class, steps=3, lr=0.1, **kwargs)

    GeneralCheckpointIO().load_optimizer(optimizer, checkpoint)

    assert set(optimizer.state) == {params[1]}
    check_state_dict_equal(optimizer.state_dict(), saved.state_dict())


def test_a_missing_shard_changes_nothing(tmp_path):
    _, saved = build(steps=1, lr=0.5, momentum=0.9)
    checkpoint = save(saved, tmp_path / "optimizer")
    max(Path(checkpoint).glob("pytorch_optim-*.bin")).unlink()
    _, optimizer = build(steps=2, lr=0.1, momentum=0.9)
    before = deepcopy(optimizer.state_dict())

    with pytest.raises(FileNotFoundError):
        GeneralCheckpointIO().load_optimizer(optimizer, checkpoint)

    check_state_dict_equal(optimizer.state_dict(), before)


def check_plugins():
    _, never_stepped = build(lr=0.1, momentum=0.9)
    with shared_tempdir() as tempdir:
        checkpoint = save(never_stepped, os.path.join(tempdir, str(torch.distributed.get_rank())))
        for checkpoint_io, wrap in ((TorchDDPCheckpointIO(), OptimizerWrapper), (LowLevelZeroCheckpointIO(), as_zero)):
            _, optimizer = build(lr=0.2, momentum=0.9, steps=1)
            checkpoint_io.load_optimizer(wrap(optimizer), checkpoint)
            assert not optimizer.state
            assert optimizer.param_groups[0]["lr"] == 0.1


def as_zero(optimizer):
    # making a real one takes an accelerator; loading asks it for the optimizer inside and how parameters are divided
    wrapped = LowLevelZeroOptimizer.__new__(LowLevelZeroOptimizer)
    wrapped.optim, wrapped.grad_handles = optimizer, []
    params = optimizer.param_groups[0]["params"]
    wrapped.master_to_working_param = {id(param): param for param in params}
    wrapped.param_to_pg = {param: torch.distributed.group.WORLD for param in params}
    return wrapped


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_plugins()


@pytest.mark.dist
@rerun_if_address_is_in_use()
def test_state_from_before_the_first_step_in_plugins():
    spawn(run_dist, 2)
