from copy import deepcopy
from types import SimpleNamespace
from unittest import mock

import colossalai
import pytest
import torch
from colossalai.accelerator import CpuAccelerator
from colossalai.booster.plugin.gemini_plugin import GeminiCheckpointIO
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.testing import parameterize, rerun_if_address_is_in_use, spawn
from colossalai.zero.gemini.gemini_optimizer import GeminiOptimizer
from torch.optim import SGD, Adam
from utils import shared_tempdir

# These tests need no accelerator.

SHAPE = (2, 3)


def make_native(steps, with_gradient=(0, 1, 2), optimizer_class=Adam, sizes=(2, 1), **kwargs):
    params = [torch.nn.Parameter(torch.ones(SHAPE)) for _ in range(sum(sizes))]
    groups, start = [], 0
    for size in sizes:
        groups.append({"params": params[start : start + size]})
        start += size
    optimizer = optimizer_class(groups, **kwargs)
    for _ in range(steps):
        for index in with_gradient:
            params[index].grad = torch.ones(SHAPE)
        optimizer.step()
    return optimizer


def make_gemini(steps):
    # A real one takes an accelerator. Loading asks it which part of a parameter it has: here, all of it.
    params = [torch.nn.Parameter(torch.ones(SHAPE)) for _ in range(3)]
    fakes = [torch.nn.Parameter(torch.ones(6)) for _ in params]
    optimizer = GeminiOptimizer.__new__(GeminiOptimizer)
    optimizer.optim = Adam([{"params": fakes[:2]}, {"params": fakes[2:]}], lr=0.1, amsgrad=True)
    optimizer.param_groups_backup = [{"params": [0, 1]}, {"params": [2]}]
    optimizer.id_to_real_params = dict(enumerate(params))
    optimizer.id_to_fake_params = dict(enumerate(fakes))
    optimizer.params_info = {"id2shape": {index: torch.Size(SHAPE) for index in range(3)}}
    optimizer.param_to_range = {fake: (0, 6) for fake in fakes}
    chunk = SimpleNamespace(keep_gathered=True, tensors_info={param: None for param in params}, dtype=torch.float32)
    optimizer.param_to_chunk16 = {fake: chunk for fake in fakes}
    optimizer.module, optimizer.tp_rank, optimizer.tp_size = SimpleNamespace(master_weights=False), 0, 1
    for _ in range(steps):
        for fake in fakes:
            fake.grad = torch.ones(6)
        optimizer.optim.step()
    return optimizer


def save(optimizer, checkpoint, shard):
    GeneralCheckpointIO().save_optimizer(optimizer, checkpoint, shard=shard, size_per_shard=0)
    return checkpoint


@parameterize("shard", [False, True])
@parameterize("with_gradient", [(), (1,), (0, 1, 2)])
def check_entries_and_keys_are_replaced(shard, with_gradient):
    saved, optimizer = make_native(1, with_gradient, lr=0.5), make_gemini(steps=2)
    with shared_tempdir() as tempdir:
        GeminiCheckpointIO().load_optimizer(optimizer, save(saved, f"{tempdir}/optimizer", shard))
    assert set(optimizer.optim.state) == {optimizer.id_to_fake_params[index] for index in with_gradient}
    for state in optimizer.optim.state.values():
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"} and state["step"] == 1
    assert [group["lr"] for group in optimizer.optim.param_groups] == [0.5, 0.5]


@parameterize("shard", [False, True])
@parameterize("saved", ["no groups", "fewer groups", "other sizes", "another optimizer"])
def check_foreign_groups_are_refused(shard, saved):
    optimizer = make_gemini(steps=2)
    state, groups = deepcopy(optimizer.optim.state_dict()), deepcopy(optimizer.param_groups_backup)
    native = {
        "no groups": lambda: make_native(1),
        "fewer groups": lambda: make_native(1, sizes=(3,)),
        "other sizes": lambda: make_native(1, sizes=(1, 2)),
        "another optimizer": lambda: make_native(1, optimizer_class=SGD, momentum=0.9, lr=0.5),
    }[saved]()
    if saved == "no groups":
        native.param_groups = []
        native.state.clear()
    with shared_tempdir() as tempdir:
        with pytest.raises(ValueError):
            GeminiCheckpointIO().load_optimizer(optimizer, save(native, f"{tempdir}/optimizer", shard))
    assert str(optimizer.optim.state_dict()) == str(state)
    assert optimizer.param_groups_backup == groups


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    # a CPU has nothing to wait for
    with mock.patch.object(CpuAccelerator, "synchronize", lambda self, device=None: None):
        check_entries_and_keys_are_replaced()
        check_foreign_groups_are_refused()


@rerun_if_address_is_in_use()
def test_gemini_optimizer_state():
    spawn(run_dist, 1)
