import json
from copy import deepcopy
from pathlib import Path

import colossalai
import pytest
import torch
import torch.distributed as dist
from colossalai.accelerator import get_accelerator
from colossalai.booster import Booster
from colossalai.booster.plugin import MoeHybridParallelPlugin
from colossalai.testing import (
    check_state_dict_equal,
    clear_cache_before_run,
    parameterize,
    rerun_if_address_is_in_use,
    spawn,
)
from colossalai.utils import get_current_device
from torch.optim import Adam
from transformers import MixtralConfig, MixtralForCausalLM
from utils import shared_tempdir

PLUGINS = [
    {"ep_size": 2, "pp_size": 1, "zero_stage": 1},
    {"ep_size": 2, "pp_size": 2, "zero_stage": 1, "microbatch_size": 1},
]


def boost(plugin, steps, lr=0.01, expert_lr=0.001):
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=128,
        hidden_size=8,
        intermediate_size=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=2,
    )
    model = MixtralForCausalLM(config)
    experts = [param for name, param in model.named_parameters() if "experts" in name]
    others = [param for name, param in model.named_parameters() if "experts" not in name]
    optimizer = Adam([{"params": others, "lr": lr}, {"params": experts, "lr": expert_lr}], lr=lr)
    booster = Booster(plugin=MoeHybridParallelPlugin(tp_size=1, precision="bf16", **plugin))
    model, optimizer, *_ = booster.boost(model, optimizer)
    for _ in range(steps):
        train(booster, model, optimizer)
    return booster, model, optimizer


def train(booster, model, optimizer):
    tokens = torch.arange(14, device=get_current_device()).view(2, 7)
    data = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    if booster.plugin.stage_manager is None:
        booster.backward(model(**data).loss, optimizer)
    else:
        booster.execute_pipeline(iter([data]), model, lambda outputs, inputs: outputs.loss, optimizer)
    optimizer.step()
    optimizer.zero_grad()


def state_of(optimizer):
    return deepcopy(optimizer.optim.state_dict())


@clear_cache_before_run()
@parameterize("plugin", PLUGINS)
@parameterize("shard", [False, True])
@parameterize("saved_steps", [0, 2])
def check_loading_replaces_the_state(plugin: dict, shard: bool, saved_steps: int):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(plugin, saved_steps, lr=0.5, expert_lr=0.25)
        booster.save_optimizer(saved, checkpoint, shard=shard, size_per_shard=1)
        dist.barrier()

        booster, model, optimizer = boost(plugin, steps=3)
        booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=shard)
        check_state_dict_equal(state_of(optimizer), state_of(saved))
        train(booster, model, optimizer)


@parameterize("plugin", PLUGINS)
def check_state_that_the_checkpoint_lacks_does_not_survive(plugin: dict):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(plugin, steps=2, lr=0.5)
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

        # state that is cut already must not be cut again, as leftovers were
        booster, model, optimizer = boost(plugin, steps=3)
        booster.load_optimizer(optimizer, checkpoint)
        dropped = torch.tensor(len(saved.optim.state) - len(optimizer.optim.state), device=get_current_device())
        dist.all_reduce(dropped)
        assert dropped.item() == dist.get_world_size() // plugin["pp_size"]
        train(booster, model, optimizer)


@parameterize("plugin", PLUGINS)
def check_all_ranks_load_or_none(plugin: dict):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(plugin, steps=2, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=True, size_per_shard=1)
        dist.barrier()
        groups = Path(checkpoint, "pytorch_optim_group.bin")
        content = groups.read_bytes()
        dist.barrier()
        if dist.get_rank() == 0:
            groups.write_bytes(content[:100])
        dist.barrier()

        booster, _, optimizer = boost(plugin, steps=3)
        before = state_of(optimizer)
        with pytest.raises(RuntimeError, match="pytorch_optim_group.bin"):
            booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(state_of(optimizer), before)

        dist.barrier()
        if dist.get_rank() == 0:
            groups.write_bytes(content)
        dist.barrier()
        booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(state_of(optimizer), state_of(saved))


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_loading_replaces_the_state()
    check_state_that_the_checkpoint_lacks_does_not_survive()
    check_all_ranks_load_or_none()


@pytest.mark.dist
@pytest.mark.skipif(get_accelerator().name == "cpu", reason="MoeHybridParallelPlugin needs an accelerator")
@pytest.mark.parametrize("world_size", [4])
@rerun_if_address_is_in_use()
def test_moe_optimizer_checkpointIO(world_size):
    spawn(run_dist, world_size)
