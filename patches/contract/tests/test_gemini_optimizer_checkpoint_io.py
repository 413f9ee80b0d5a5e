import json
from copy import deepcopy
from pathlib import Path

import colossalai
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from colossalai.accelerator import get_accelerator
from colossalai.booster import Booster
from colossalai.booster.plugin import GeminiPlugin
from colossalai.nn.optimizer import HybridAdam
from colossalai.testing import (
    check_state_dict_equal,
    clear_cache_before_run,
    parameterize,
    rerun_if_address_is_in_use,
    spawn,
)
from colossalai.utils import get_current_device
from utils import shared_tempdir

PLACEMENTS = [
    {"placement_policy": "static", "shard_param_frac": 0.0},
    {"placement_policy": "static", "shard_param_frac": 1.0},
    {"placement_policy": "static", "shard_param_frac": 1.0, "offload_optim_frac": 1.0},
]


def boost(placement, steps, lr=0.1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 1))
    optimizer = HybridAdam(model.parameters(), lr=lr)
    plugin = GeminiPlugin(**placement, precision="bf16", min_chunk_size_m=0.0001, search_range_m=1)
    booster = Booster(plugin=plugin)
    model, optimizer, *_ = booster.boost(model, optimizer)
    for _ in range(steps):
        train(booster, model, optimizer)
    return booster, model, optimizer


def train(booster, model, optimizer):
    x = torch.arange(16, dtype=torch.bfloat16, device=get_current_device()).view(2, 8) / 16
    booster.backward(model(x).float().sum(), optimizer)
    optimizer.step()
    optimizer.zero_grad()


def state_of(optimizer):
    return deepcopy(optimizer.state_dict(only_rank_0=False))


@clear_cache_before_run()
@parameterize("placement", PLACEMENTS)
@parameterize("shard", [False, True])
@parameterize("saved_steps", [0, 2])
def check_loading_replaces_the_state(placement: dict, shard: bool, saved_steps: int):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(placement, saved_steps, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=shard, size_per_shard=1)
        dist.barrier()

        booster, model, optimizer = boost(placement, steps=3)
        booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=shard)
        check_state_dict_equal(state_of(optimizer), state_of(saved))
        train(booster, model, optimizer)


@parameterize("placement", PLACEMENTS)
def check_what_the_checkpoint_lacks_does_not_survive(placement: dict):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(placement, steps=2, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=True, size_per_shard=1)
        dist.barrier()
        if dist.get_rank() == 0:
            (index_path,) = Path(checkpoint).glob("*.index.json")
            index = json.loads(index_path.read_text())
            shard = Path(checkpoint, index["weight_map"].pop("1"))
            states = torch.load(shard)
            del states[1]
            torch.save(states, shard)
            index_path.write_text(json.dumps(index))
        dist.barrier()

        booster, _, optimizer = boost(placement, steps=3)
        booster.load_optimizer(optimizer, checkpoint)
        loaded, expected = state_of(optimizer), state_of(saved)
        del expected["state"][1]
        check_state_dict_equal(loaded, expected)


@parameterize("placement", PLACEMENTS)
def check_saving_changes_nothing(placement: dict):
    with shared_tempdir() as tempdir:
        booster, _, optimizer = boost(placement, steps=0)
        booster.save_optimizer(optimizer, f"{tempdir}/sharded", shard=True)
        booster.save_optimizer(optimizer, f"{tempdir}/whole", shard=False)
        assert len(optimizer.optim.state) == 0
        dist.barrier()
        (index_path,) = Path(f"{tempdir}/sharded").glob("*.index.json")
        assert json.loads(index_path.read_text())["weight_map"] == {}


@parameterize("placement", PLACEMENTS)
@parameterize("shard", [False, True])
def check_groups_that_do_not_fit_are_refused(placement: dict, shard: bool):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(placement, steps=2, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=shard, size_per_shard=1)
        dist.barrier()
        if dist.get_rank() == 0:
            path = Path(checkpoint, "pytorch_optim_group.bin") if shard else Path(checkpoint)
            content = torch.load(path)
            (content if shard else content["param_groups"]).clear()
            torch.save(content, path)
        dist.barrier()

        booster, _, optimizer = boost(placement, steps=3)
        before = state_of(optimizer)
        with pytest.raises(ValueError, match="group"):
            booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(state_of(optimizer), before)


@parameterize("placement", PLACEMENTS)
def check_all_ranks_load_or_none(placement: dict):
    with shared_tempdir() as tempdir:
        booster, _, saved = boost(placement, steps=2, lr=0.5)
        # each rank reads files of its own, as it does without a shared file system
        for rank in range(dist.get_world_size()):
            booster.save_optimizer(saved, f"{tempdir}/optimizer-of-rank-{rank}", shard=True)
        dist.barrier()
        checkpoint = f"{tempdir}/optimizer-of-rank-{dist.get_rank()}"

        booster, _, optimizer = boost(placement, steps=3)
        before = state_of(optimizer)
        if dist.get_rank() == 1:
            Path(checkpoint, "pytorch_optim_group.bin").unlink()
        with pytest.raises(RuntimeError, match="rank 1: .*pytorch_optim_group.bin"):
            booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(state_of(optimizer), before)


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_loading_replaces_the_state()
    check_what_the_checkpoint_lacks_does_not_survive()
    check_saving_changes_nothing()
    check_groups_that_do_not_fit_are_refused()
    check_all_ranks_load_or_none()


@pytest.mark.dist
@pytest.mark.skipif(get_accelerator().name == "cpu", reason="GeminiPlugin needs an accelerator")
@pytest.mark.parametrize("world_size", [2])
@rerun_if_address_is_in_use()
def test_gemini_optimizer_checkpointIO(world_size):
    spawn(run_dist, world_size)
