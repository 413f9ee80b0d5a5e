from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import colossalai
import pytest
import torch
import torch.distributed as dist
from colossalai.booster.plugin.hybrid_parallel_plugin import HybridParallelNaiveOptimizer, get_param_info
from colossalai.checkpoint_io import HybridParallelCheckpointIO
from colossalai.testing import check_state_dict_equal, parameterize, rerun_if_address_is_in_use, spawn
from torch.optim import Adam
from utils import shared_tempdir

# These tests need no accelerator.


def build(steps=0, with_gradient=(0, 1, 2), sizes=(2, 1), lr=0.1):
    params = [torch.nn.Parameter(torch.ones(4)) for _ in range(sum(sizes))]
    groups, start = [], 0
    for size in sizes:
        groups.append({"params": params[start : start + size]})
        start += size
    optimizer = Adam(groups, lr=lr)
    model = SimpleNamespace(stage_manager=None, shared_params=[])
    wrapped = HybridParallelNaiveOptimizer(optimizer, model, use_pipeline=False, param_info=get_param_info(optimizer))
    for _ in range(steps):
        for index in with_gradient:
            params[index].grad = torch.ones(4)
        optimizer.step()
    return params, wrapped


def make_checkpoint_io():
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    return HybridParallelCheckpointIO(dist.group.WORLD, alone, alone, alone, zero_stage=0)


@parameterize("shard", [False, True])
@parameterize("saved_steps", [0, 1])
def check_state_is_replaced(shard, saved_steps):
    _, saved = build(steps=saved_steps, with_gradient=(1,), lr=0.5)
    params, optimizer = build(steps=2)
    checkpoint_io = make_checkpoint_io()
    with shared_tempdir() as tempdir:
        checkpoint_io.save_optimizer(saved, f"{tempdir}/optimizer", shard=shard)
        dist.barrier()
        checkpoint_io.load_optimizer(optimizer, f"{tempdir}/optimizer")
        assert set(optimizer.optim.state) == set(params[1:2] if saved_steps else [])
        check_state_dict_equal(optimizer.optim.state_dict(), saved.optim.state_dict())


@parameterize("shard", [False, True])
@parameterize("sizes", [(3,), (1, 2), (2, 1, 1)])
def check_other_groups_are_refused(shard, sizes):
    _, saved = build(steps=1, sizes=sizes, lr=0.5)
    _, optimizer = build(steps=2)
    before = deepcopy(optimizer.optim.state_dict())
    checkpoint_io = make_checkpoint_io()
    with shared_tempdir() as tempdir:
        checkpoint_io.save_optimizer(saved, f"{tempdir}/optimizer", shard=shard)
        dist.barrier()
        with pytest.raises(ValueError):
            checkpoint_io.load_optimizer(optimizer, f"{tempdir}/optimizer")
        check_state_dict_equal(optimizer.optim.state_dict(), before)


def check_a_missing_shard_changes_nothing():
    _, saved = build(steps=1, lr=0.5)
    _, optimizer = build(steps=2)
    before = deepcopy(optimizer.optim.state_dict())
    checkpoint_io = make_checkpoint_io()
    with shared_tempdir() as tempdir:
        checkpoint_io.save_optimizer(saved, f"{tempdir}/optimizer", shard=True, size_per_shard=0)
        dist.barrier()
        if dist.get_rank() == 0:
            max(Path(tempdir).glob("optimizer/pytorch_optim-*.bin")).unlink()
        dist.barrier()
        with pytest.raises(FileNotFoundError):
            checkpoint_io.load_optimizer(optimizer, f"{tempdir}/optimizer")
        check_state_dict_equal(optimizer.optim.state_dict(), before)


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_state_is_replaced()
    check_other_groups_are_refused()
    check_a_missing_shard_changes_nothing()


@pytest.mark.dist
@rerun_if_address_is_in_use()
def test_hybrid_parallel_optimizer_state():
    spawn(run_dist, 2)
