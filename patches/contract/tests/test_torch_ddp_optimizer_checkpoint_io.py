from copy import deepcopy
from pathlib import Path

import colossalai
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from colossalai.booster import Booster
from colossalai.booster.plugin import TorchDDPPlugin
from colossalai.testing import check_state_dict_equal, parameterize, rerun_if_address_is_in_use, spawn
from colossalai.utils import get_current_device
from torch.optim import Adam
from utils import shared_tempdir


def boost(steps, with_gradient=(0, 1, 2, 3), lr=0.1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = Adam(model.parameters(), lr=lr)
    booster = Booster(plugin=TorchDDPPlugin())
    model, optimizer, *_ = booster.boost(model, optimizer)
    for _ in range(steps):
        train(model, optimizer, with_gradient)
    return booster, model, optimizer


def train(model, optimizer, with_gradient=(0, 1, 2, 3)):
    for index, param in enumerate(model.unwrap().parameters()):
        param.grad = torch.full_like(param, 1.0 + index) if index in with_gradient else None
    optimizer.step()


@parameterize("shard", [False, True])
@parameterize("low_cpu_mem_mode", [False, True])
@parameterize("saved_steps", [0, 2])
def check_loading_replaces_the_state(shard: bool, low_cpu_mem_mode: bool, saved_steps: int):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(saved_steps, with_gradient=(0, 3), lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=shard, size_per_shard=0)
        dist.barrier()

        booster, model, optimizer = boost(steps=5)
        booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=low_cpu_mem_mode)
        check_state_dict_equal(optimizer.state_dict(), saved.state_dict())
        train(model, optimizer)


@parameterize("low_cpu_mem_mode", [False, True])
def check_all_ranks_load_or_none(low_cpu_mem_mode: bool):
    with shared_tempdir() as tempdir:
        booster, _, saved = boost(steps=2, lr=0.5)
        checkpoint = f"{tempdir}/optimizer-of-rank-{dist.get_rank()}"
        # each rank reads files of its own, as it does without a shared file system
        for rank in range(dist.get_world_size()):
            booster.save_optimizer(saved, f"{tempdir}/optimizer-of-rank-{rank}", shard=True, size_per_shard=0)
        dist.barrier()

        booster, _, optimizer = boost(steps=5)
        before = deepcopy(optimizer.state_dict())
        lost = Path(checkpoint, "pytorch_optim-00002.bin")
        content = lost.read_bytes()
        if dist.get_rank() == 1:
            lost.unlink()
        with pytest.raises(RuntimeError, match="rank 1: .*pytorch_optim-00002.bin"):
            booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=low_cpu_mem_mode)
        check_state_dict_equal(optimizer.state_dict(), before)

        lost.write_bytes(content)
        booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=low_cpu_mem_mode)
        check_state_dict_equal(optimizer.state_dict(), saved.state_dict())


def check_tensors_are_on_the_device():
    with shared_tempdir() as tempdir:
        booster, _, saved = boost(steps=2)
        booster.save_optimizer(saved, f"{tempdir}/optimizer", shard=True)
        dist.barrier()
        booster, _, optimizer = boost(steps=0)
        booster.load_optimizer(optimizer, f"{tempdir}/optimizer")
        for state in optimizer.unwrap().state.values():
            assert state["exp_avg"].device == get_current_device()


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_loading_replaces_the_state()
    check_all_ranks_load_or_none()
    check_tensors_are_on_the_device()


@pytest.mark.dist
@rerun_if_address_is_in_use()
def test_torch_ddp_optimizer_checkpointIO():
    spawn(run_dist, 2)
