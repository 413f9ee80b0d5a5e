from copy import deepcopy
from pathlib import Path

import colossalai
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from colossalai.accelerator import get_accelerator
from colossalai.booster import Booster
from colossalai.booster.plugin import LowLevelZeroPlugin
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.testing import (
    check_state_dict_equal,
    clear_cache_before_run,
    parameterize,
    rerun_if_address_is_in_use,
    spawn,
)
from colossalai.utils import get_current_device
from torch.optim import SGD, Adam, NAdam
from utils import shared_tempdir


class Model(nn.Module):
    """Sizes that two ranks cannot divide evenly, and a layer that may go unused."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.second = nn.Linear(5, 1)
        self.sometimes = nn.Linear(5, 1)

    def forward(self, x, use_all):
        x = self.first(x)
        return self.second(x) + self.sometimes(x) if use_all else self.second(x)


def boost(stage, offload, optimizer_class=Adam, steps=0, use_all=True, **kwargs):
    torch.manual_seed(0)
    model = Model()
    kwargs.setdefault("lr", 0.1)
    optimizer = optimizer_class(model.parameters(), **kwargs)
    booster = Booster(plugin=LowLevelZeroPlugin(stage=stage, precision="bf16", cpu_offload=offload))
    model, optimizer, *_ = booster.boost(model, optimizer)
    for _ in range(steps):
        train(booster, model, optimizer, use_all)
    return booster, model, optimizer


def train(booster, model, optimizer, use_all=True):
    x = torch.arange(6, dtype=torch.bfloat16, device=get_current_device()).view(2, 3)
    booster.backward(model(x, use_all).float().sum(), optimizer)
    optimizer.step()
    optimizer.zero_grad()


@clear_cache_before_run()
@parameterize("stage", [1, 2])
@parameterize("offload", [False, True])
@parameterize("shard", [False, True])
@parameterize("low_cpu_mem_mode", [False, True])
@parameterize("saved", [{"steps": 0}, {"steps": 2, "use_all": False}, {"steps": 2}])
def check_loading_replaces_the_state(stage: int, offload: bool, shard: bool, low_cpu_mem_mode: bool, saved: dict):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved_optimizer = boost(stage, offload, lr=0.5, **saved)
        booster.save_optimizer(saved_optimizer, checkpoint, shard=shard, size_per_shard=0)
        dist.barrier()

        booster, model, optimizer = boost(stage, offload, steps=5)
        masters = [param.clone() for group in optimizer.optim.param_groups for param in group["params"]]
        booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=low_cpu_mem_mode)
        check_state_dict_equal(optimizer.optim.state_dict(), saved_optimizer.optim.state_dict())
        for before, after in zip(
            masters, (param for group in optimizer.optim.param_groups for param in group["params"])
        ):
            assert torch.equal(before, after)
        train(booster, model, optimizer)


@parameterize("stage", [1, 2])
@parameterize("shard", [False, True])
@parameterize("choice", [(SGD, {}), (SGD, {"momentum": 0.9}), (NAdam, {})])
def check_states_of_other_optimizers(stage: int, shard: bool, choice: tuple):
    optimizer_class, kwargs = choice
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(stage, False, optimizer_class, steps=2, **kwargs)
        booster.save_optimizer(saved, checkpoint, shard=shard, size_per_shard=0)
        dist.barrier()
        booster, _, optimizer = boost(stage, False, optimizer_class, steps=5, **kwargs)
        booster.load_optimizer(optimizer, checkpoint)
        # among them numbers like NAdam's mu_product, of which every rank needs its copy
        check_state_dict_equal(optimizer.optim.state_dict(), saved.optim.state_dict())


@parameterize("stage", [1, 2])
@parameterize("low_cpu_mem_mode", [False, True])
def check_all_ranks_load_or_none(stage: int, low_cpu_mem_mode: bool):
    with shared_tempdir() as tempdir:
        booster, _, saved = boost(stage, False, steps=2, lr=0.5)
        # each rank reads files of its own, as it does without a shared file system
        for rank in range(dist.get_world_size()):
            booster.save_optimizer(saved, f"{tempdir}/optimizer-of-rank-{rank}", shard=True, size_per_shard=0)
        dist.barrier()
        checkpoint = f"{tempdir}/optimizer-of-rank-{dist.get_rank()}"

        booster, _, optimizer = boost(stage, False, steps=5)
        before = deepcopy(optimizer.optim.state_dict())
        damaged = Path(checkpoint, "pytorch_optim-00003.bin")
        content = damaged.read_bytes()
        if dist.get_rank() == 1:
            damaged.write_bytes(content[:100])
        with pytest.raises(RuntimeError, match="rank 1: .*pytorch_optim-00003.bin"):
            booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=low_cpu_mem_mode)
        check_state_dict_equal(optimizer.optim.state_dict(), before)

        damaged.write_bytes(content)
        booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=low_cpu_mem_mode)
        check_state_dict_equal(optimizer.optim.state_dict(), saved.optim.state_dict())


@parameterize("stage", [1, 2])
@parameterize("shard", [False, True])
def check_a_state_of_another_shape_is_refused(stage: int, shard: bool):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        torch.manual_seed(0)
        other = Adam([nn.Parameter(torch.ones(shape)) for shape in ((3, 5), (5,), (1, 5), (1,), (1, 5), (1,))], lr=0.5)
        for param in other.param_groups[0]["params"]:
            param.grad = torch.ones_like(param)
        other.step()
        booster, _, optimizer = boost(stage, False, steps=5)
        if dist.get_rank() == 0:
            GeneralCheckpointIO().save_optimizer(other, checkpoint, shard=shard)
        dist.barrier()
        before = deepcopy(optimizer.optim.state_dict())
        with pytest.raises(ValueError, match=r"\(5, 3\).*\(3, 5\)"):
            booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(optimizer.optim.state_dict(), before)


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_loading_replaces_the_state()
    check_states_of_other_optimizers()
    check_all_ranks_load_or_none()
    check_a_state_of_another_shape_is_refused()


@pytest.mark.dist
@pytest.mark.skipif(get_accelerator().name == "cpu", reason="LowLevelZeroOptimizer needs an accelerator")
@rerun_if_address_is_in_use()
def test_low_level_zero_optimizer_checkpointIO():
    spawn(run_dist, 2)
