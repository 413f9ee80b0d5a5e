from copy import deepcopy
from pathlib import Path

import colossalai
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from colossalai.accelerator import get_accelerator
from colossalai.booster import Booster
from colossalai.booster.plugin import TorchFSDPPlugin
from colossalai.testing import (
    check_state_dict_equal,
    clear_cache_before_run,
    parameterize,
    rerun_if_address_is_in_use,
    spawn,
)
from colossalai.utils import get_current_device
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.optim import Adam
from utils import shared_tempdir


def boost(steps, lr=0.1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))
    optimizer = Adam(model.parameters(), lr=lr)
    booster = Booster(plugin=TorchFSDPPlugin())
    model, optimizer, *_ = booster.boost(model, optimizer)
    assert isinstance(model.unwrap(), FSDP)
    for _ in range(steps):
        train(model, optimizer)
    return booster, model, optimizer


def train(model, optimizer):
    x = torch.arange(6, dtype=torch.float32, device=get_current_device()).view(2, 3)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()


def state_of(optimizer):
    return deepcopy(optimizer.optim.state_dict())


@clear_cache_before_run()
@parameterize("shard", [False, True])
@parameterize("saved_steps", [0, 2])
def check_loading_replaces_the_state(shard: bool, saved_steps: int):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(saved_steps, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=shard)
        dist.barrier()

        booster, model, optimizer = boost(steps=5)
        booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=shard)
        check_state_dict_equal(state_of(optimizer), state_of(saved))
        train(model, optimizer)


@parameterize("damage", ["missing", "truncated"])
def check_a_rank_that_cannot_read_makes_all_ranks_raise(damage: str):
    with shared_tempdir() as tempdir:
        booster, _, saved = boost(steps=2, lr=0.5)
        # each rank reads files of its own, as it does without a shared file system
        for rank in range(dist.get_world_size()):
            booster.save_optimizer(saved, f"{tempdir}/optimizer-of-rank-{rank}", shard=True)
        dist.barrier()
        checkpoint = f"{tempdir}/optimizer-of-rank-{dist.get_rank()}"

        booster, _, optimizer = boost(steps=5)
        before = state_of(optimizer)
        damaged = Path(checkpoint, "pytorch_optim-00001.bin")
        content = damaged.read_bytes()
        if dist.get_rank() == 1 and damage == "missing":
            damaged.unlink()
        elif dist.get_rank() == 1:
            damaged.write_bytes(content[:100])
        with pytest.raises(RuntimeError, match="rank 1: .*pytorch_optim-00001.bin"):
            booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(state_of(optimizer), before)

        damaged.write_bytes(content)
        booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(state_of(optimizer), state_of(saved))


@parameterize("shard", [False, True])
def check_groups_that_do_not_fit_are_refused(shard: bool):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(steps=2, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=shard)
        dist.barrier()
        if dist.get_rank() == 0:
            path = Path(checkpoint, "pytorch_optim_group.bin") if shard else Path(checkpoint)
            content = torch.load(path)
            groups = content if shard else content["param_groups"]
            groups.append({**groups[0], "params": [groups[0]["params"].pop()]})
            torch.save(content, path)
        dist.barrier()

        booster, _, optimizer = boost(steps=5)
        before = state_of(optimizer)
        with pytest.raises(ValueError, match="group"):
            booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(state_of(optimizer), before)


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_loading_replaces_the_state()
    check_a_rank_that_cannot_read_makes_all_ranks_raise()
    check_groups_that_do_not_fit_are_refused()


@pytest.mark.dist
@pytest.mark.skipif(get_accelerator().name == "cpu", reason="TorchFSDPPlugin needs an accelerator")
@rerun_if_address_is_in_use()
def test_torch_fsdp_optimizer_checkpointIO():
    spawn(run_dist, 2)
