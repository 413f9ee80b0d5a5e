import json
from copy import deepcopy
from pathlib import Path

import colossalai
import pytest
import torch
import torch.distributed as dist
from colossalai.accelerator import get_accelerator
from colossalai.booster import Booster
from colossalai.booster.plugin import HybridParallelPlugin
from colossalai.shardformer.layer.utils import Randomizer
from colossalai.tensor.d_tensor.api import clear_layout_converter
from colossalai.testing import (
    check_state_dict_equal,
    clear_cache_before_run,
    parameterize,
    rerun_if_address_is_in_use,
    spawn,
)
from colossalai.utils import get_current_device
from torch.optim import Adam
from transformers import LlamaConfig, LlamaForCausalLM
from utils import shared_tempdir

PLUGINS = [
    {"tp_size": 1, "pp_size": 1, "zero_stage": 2},
    {"tp_size": 2, "pp_size": 1, "zero_stage": 0},
    {"tp_size": 2, "pp_size": 1, "zero_stage": 1},
    {"tp_size": 1, "pp_size": 2, "zero_stage": 1, "num_microbatches": 2},
    {"tp_size": 2, "pp_size": 2, "zero_stage": 0, "num_microbatches": 2},
]


def boost(plugin, steps, lr=0.01):
    torch.manual_seed(0)
    # 101 tokens, which tensor parallelism has to pad
    config = LlamaConfig(
        vocab_size=101, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4
    )
    model = LlamaForCausalLM(config)
    optimizer = Adam(model.parameters(), lr=lr)
    booster = Booster(plugin=HybridParallelPlugin(precision="bf16", **plugin))
    model, optimizer, *_ = booster.boost(model, optimizer)
    for _ in range(steps):
        train(booster, model, optimizer)
    return booster, model, optimizer


def train(booster, model, optimizer):
    tokens = torch.arange(32, device=get_current_device()).view(4, 8)
    data = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    if booster.plugin.stage_manager is None:
        booster.backward(model(**data).loss, optimizer)
    else:
        booster.execute_pipeline(iter([data]), model, lambda outputs, inputs: outputs.loss, optimizer, return_loss=True)
    optimizer.step()
    optimizer.zero_grad()


def state_of(optimizer):
    return deepcopy(optimizer.optim.state_dict())


def drop_from_checkpoint(checkpoint, param_id):
    """Make a sharded checkpoint one of an optimizer in which a parameter has no state."""
    (index_path,) = Path(checkpoint).glob("*.index.json")
    index = json.loads(index_path.read_text())
    shard = Path(checkpoint, index["weight_map"].pop(str(param_id)))
    states = torch.load(shard)
    del states[param_id]
    torch.save(states, shard)
    index_path.write_text(json.dumps(index))


@clear_cache_before_run()
@parameterize("plugin", PLUGINS)
@parameterize("shard", [False, True])
@parameterize("saved_steps", [0, 2])
def check_loading_replaces_the_state(plugin: dict, shard: bool, saved_steps: int):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(plugin, saved_steps, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=shard, size_per_shard=1)
        dist.barrier()

        booster, model, optimizer = boost(plugin, steps=3)
        booster.load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=shard)
        check_state_dict_equal(state_of(optimizer), state_of(saved))
        train(booster, model, optimizer)
    Randomizer.reset_index()
    clear_layout_converter()


@parameterize("plugin", PLUGINS)
def check_state_that_the_checkpoint_lacks_does_not_survive(plugin: dict):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(plugin, steps=2, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=True, size_per_shard=1)
        dist.barrier()
        if dist.get_rank() == 0:
            drop_from_checkpoint(checkpoint, param_id=1)
        dist.barrier()

        booster, _, optimizer = boost(plugin, steps=3)
        booster.load_optimizer(optimizer, checkpoint)
        # the parameter is held by one pipeline stage
        dropped = torch.tensor(len(saved.optim.state) - len(optimizer.optim.state), device=get_current_device())
        dist.all_reduce(dropped)
        assert dropped.item() == dist.get_world_size() // plugin["pp_size"]
    Randomizer.reset_index()
    clear_layout_converter()


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
    Randomizer.reset_index()
    clear_layout_converter()


@parameterize("plugin", PLUGINS)
@parameterize("shard", [False, True])
def check_other_groups_are_refused(plugin: dict, shard: bool):
    with shared_tempdir() as tempdir:
        checkpoint = f"{tempdir}/optimizer"
        booster, _, saved = boost(plugin, steps=2, lr=0.5)
        booster.save_optimizer(saved, checkpoint, shard=shard, size_per_shard=1)
        dist.barrier()
        if dist.get_rank() == 0:
            path = Path(checkpoint, "pytorch_optim_group.bin") if shard else Path(checkpoint)
            content = torch.load(path)
            groups = content if shard else content["param_groups"]
            groups.append({**groups[0], "params": [groups[0]["params"].pop()]})
            torch.save(content, path)
        dist.barrier()

        booster, _, optimizer = boost(plugin, steps=3)
        before = state_of(optimizer)
        with pytest.raises(ValueError, match="group"):
            booster.load_optimizer(optimizer, checkpoint)
        check_state_dict_equal(state_of(optimizer), before)
    Randomizer.reset_index()
    clear_layout_converter()


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_loading_replaces_the_state()
    check_state_that_the_checkpoint_lacks_does_not_survive()
    check_all_ranks_load_or_none()
    check_other_groups_are_refused()


@pytest.mark.dist
@pytest.mark.skipif(get_accelerator().name == "cpu", reason="HybridParallelPlugin needs an accelerator")
@pytest.mark.parametrize("world_size", [4])
@rerun_if_address_is_in_use()
def test_hybrid_parallel_optimizer_checkpointIO(world_size):
    spawn(run_dist, world_size)
