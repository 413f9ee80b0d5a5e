import json
import os
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.checkpoint_io.utils import load_param_groups_into_optimizer, load_states_into_optimizer
from colossalai.testing import check_state_dict_equal
from torch.optim import SGD, Adam, AdamW

# These tests need no accelerator: whatever a checkpoint holds, loading it must leave the optimizer as
# torch.optim.Optimizer.load_state_dict would.


def build(optimizer_class=Adam, steps=0, with_gradient=range(4), **kwargs):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    kwargs.setdefault("lr", 0.1)
    optimizer = optimizer_class(model.parameters(), **kwargs)
    for step in range(steps):
        train(model, with_gradient, scale=step + 1)
        optimizer.step()
    return model, optimizer


def train(model, with_gradient=range(4), scale=1):
    for index, param in enumerate(model.parameters()):
        param.grad = torch.full_like(param, float(scale)) if index in with_gradient else None


def save(optimizer, path, shard):
    # a limit of 0 MB gives each parameter a shard of its own
    GeneralCheckpointIO().save_optimizer(optimizer, str(path), shard=shard, size_per_shard=0)
    return str(path)


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("low_cpu_mem_mode", [False, True])
@pytest.mark.parametrize("optimizer_class, kwargs", [(Adam, {}), (AdamW, {}), (SGD, {"momentum": 0.9})])
@pytest.mark.parametrize("saved_steps, with_gradient", [(0, ()), (2, (0, 3)), (2, (0, 1, 2, 3))])
def test_loading_replaces_the_state(
    tmp_path, shard, low_cpu_mem_mode, optimizer_class, kwargs, saved_steps, with_gradient
):
    _, saved = build(optimizer_class, saved_steps, with_gradient, lr=0.5, **kwargs)
    checkpoint = save(saved, tmp_path / "optimizer", shard)

    model, optimizer = build(optimizer_class, steps=5, **kwargs)
    native_model, native_optimizer = build(optimizer_class, steps=5, **kwargs)
    GeneralCheckpointIO().load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=low_cpu_mem_mode)
    native_optimizer.load_state_dict(saved.state_dict())

    assert len(optimizer.state) == len(with_gradient)
    check_state_dict_equal(optimizer.state_dict(), native_optimizer.state_dict())
    for trained, trained_optimizer in ((model, optimizer), (native_model, native_optimizer)):
        train(trained, scale=7)
        trained_optimizer.step()
    for param, native_param in zip(model.parameters(), native_model.parameters()):
        assert torch.equal(param, native_param)


@pytest.mark.parametrize("shard", [False, True])
def test_momentum_of_a_trained_optimizer_does_not_survive(tmp_path, shard):
    def with_gradient_of_one():
        param = nn.Parameter(torch.tensor([1.0]))
        param.grad = torch.tensor([1.0])
        return param, SGD([param], lr=0.1, momentum=0.9)

    _, fresh = with_gradient_of_one()
    checkpoint = save(fresh, tmp_path / "optimizer", shard)
    param, optimizer = with_gradient_of_one()
    optimizer.state[param]["momentum_buffer"] = torch.tensor([1.0])
    GeneralCheckpointIO().load_optimizer(optimizer, checkpoint)
    assert dict(optimizer.state) == {}
    optimizer.step()
    assert param.item() == pytest.approx(0.9)


@pytest.mark.parametrize("shard", [False, True])
def test_keys_that_the_checkpoint_lacks_do_not_survive(tmp_path, shard):
    _, saved = build(steps=1)
    checkpoint = save(saved, tmp_path / "optimizer", shard)
    model, optimizer = build(steps=3, amsgrad=True)
    GeneralCheckpointIO().load_optimizer(optimizer, checkpoint)
    for param in model.parameters():
        assert set(optimizer.state[param]) == {"step", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("shard", [False, True])
def test_load_hooks_and_defaults(tmp_path, shard):
    _, saved = build(steps=1)
    for group in saved.param_groups:
        del group["maximize"], group["capturable"]
    checkpoint = save(saved, tmp_path / "optimizer", shard)
    model, optimizer = build(steps=2)
    calls = []
    optimizer.register_load_state_dict_pre_hook(lambda _, state_dict: calls.append(sorted(state_dict)))
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))
    GeneralCheckpointIO().load_optimizer(optimizer, checkpoint)
    assert calls == [["param_groups", "state"], "loaded"]
    train(model)
    optimizer.step()


def cut_short(path):
    path.write_bytes(path.read_bytes()[:100])


def rename_id(directory, shard, old, new):
    states = torch.load(directory / shard)
    states[new] = states.pop(old)
    torch.save(states, directory / shard)
    index_path = directory / "pytorch_optim.bin.index.json"
    index = json.loads(index_path.read_text())
    index["weight_map"] = {str(param_id): name for name in [shard] for param_id in states}
    index_path.write_text(json.dumps(index))


def reshape(directory, shard):
    states = torch.load(directory / shard)
    for state in states.values():
        state["exp_avg"] = state["exp_avg"].t().contiguous()
    torch.save(states, directory / shard)


DAMAGE = {
    "missing shard": lambda directory: os.remove(directory / "pytorch_optim-00002.bin"),
    "truncated shard": lambda directory: cut_short(directory / "pytorch_optim-00004.bin"),
    "missing group file": lambda directory: os.remove(directory / "pytorch_optim_group.bin"),
    "truncated index": lambda directory: cut_short(directory / "pytorch_optim.bin.index.json"),
    "unknown id": lambda directory: rename_id(directory, "pytorch_optim-00001.bin", 0, 9),
    "transposed state": lambda directory: reshape(directory, "pytorch_optim-00003.bin"),
    "group file without groups": lambda directory: torch.save({}, directory / "pytorch_optim_group.bin"),
    "fewer groups": lambda directory: torch.save([], directory / "pytorch_optim_group.bin"),
}


@pytest.mark.parametrize("low_cpu_mem_mode", [False, True])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_bad_checkpoint_changes_nothing(tmp_path, damage, low_cpu_mem_mode):
    _, saved = build(steps=1, lr=0.5)
    directory = Path(save(saved, tmp_path / "optimizer", shard=True))
    DAMAGE[damage](directory)
    _, optimizer = build(steps=3)
    before = deepcopy(optimizer.state_dict())
    with pytest.raises((ValueError, RuntimeError), match="unchanged"):
        GeneralCheckpointIO().load_optimizer(optimizer, str(directory), low_cpu_mem_mode=low_cpu_mem_mode)
    check_state_dict_equal(optimizer.state_dict(), before)


@pytest.mark.parametrize("shard", [False, True])
def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path, shard):
    _, saved = build(SGD, steps=1, lr=0.5, momentum=0.9)
    checkpoint = save(saved, tmp_path / "optimizer", shard)
    _, optimizer = build(steps=3)
    before = deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match="betas"):
        GeneralCheckpointIO().load_optimizer(optimizer, checkpoint)
    check_state_dict_equal(optimizer.state_dict(), before)


def test_every_problem_is_reported_at_once(tmp_path):
    _, saved = build(steps=1)
    directory = Path(save(saved, tmp_path / "optimizer", shard=True))
    DAMAGE["missing shard"](directory)
    DAMAGE["truncated shard"](directory)
    _, optimizer = build(steps=3)
    with pytest.raises(RuntimeError) as error:
        GeneralCheckpointIO().load_optimizer(optimizer, str(directory))
    for name in ("pytorch_optim-00002.bin", "pytorch_optim-00004.bin"):
        assert name in str(error.value)


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    _, saved = build(steps=1)
    directory = Path(save(saved, tmp_path / "optimizer", shard=True))
    torch.save({0: {"exp_avg": Bomb()}}, directory / "pytorch_optim-00001.bin")
    _, optimizer = build(steps=3)
    with pytest.raises(RuntimeError):
        GeneralCheckpointIO().load_optimizer(optimizer, str(directory))
    assert not (tmp_path / "exploded").exists()


def test_states_of_several_shards_add_up(tmp_path):
    _, saved = build(steps=2, lr=0.5)
    directory = Path(save(saved, tmp_path / "optimizer", shard=True))
    _, optimizer = build(steps=5)
    id_map = load_param_groups_into_optimizer(optimizer, str(directory / "pytorch_optim_group.bin"))
    for shard in sorted(directory.glob("pytorch_optim-*.bin")):
        load_states_into_optimizer(optimizer, torch.load(shard), id_map)
    check_state_dict_equal(optimizer.state_dict(), saved.state_dict())
