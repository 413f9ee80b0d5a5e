"""The gate's own writer and comparison: files that ColossalAI reads as it reads its own, and differences that are found."""

import copy
import json

import pytest
import torch

from colossalai_fork.gate.contract.checkpoint_files import LAYOUTS, CheckpointFiles, is_sharded
from colossalai_fork.gate.contract.comparison import differences, look_at, loose_storages, twin_of
from colossalai_fork.gate.contract.subjects import Recipe, make_optimizer, saved_natively
from colossalai_fork.gate.cpu.replacements import Replacements


@pytest.fixture
def saved():
    """A state dict with numbers, tensors and None."""
    saved = saved_natively(Recipe(optimizer="EveryKindOfState"))
    saved["state"][2]["list"] = [1, torch.ones(2)]
    return saved


@pytest.mark.parametrize("layout", LAYOUTS)
def test_colossalai_reads_what_is_written(saved, layout, tmp_path):
    from colossalai.checkpoint_io import CheckpointIndexFile
    from colossalai.checkpoint_io.utils import load_optim_or_model_shard

    path = CheckpointFiles(saved, layout, shards=3).write(str(tmp_path / "checkpoint"))
    if is_sharded(layout):
        index = next((tmp_path / "checkpoint").glob("*.json"))
        names, _ = CheckpointIndexFile.from_file(index).get_checkpoint_filenames()
        assert len(names) == 2
        found = {}
        for name in names:
            found.update(load_optim_or_model_shard(name, True, False))
    else:
        content = load_optim_or_model_shard(path, True, False)
        found = content["state"]
        assert differences(saved["param_groups"], content["param_groups"]) == []
    expected = copy.deepcopy(saved["state"])
    if layout.startswith("safetensors"):
        for state in expected.values():
            del state["absent"]
    assert differences(expected, found) == []


def test_safetensors_entries_are_those_of_colossalai(saved, tmp_path):
    from colossalai.utils.safetensors import _flatten_optim_state_dict
    from safetensors import safe_open

    path = CheckpointFiles(saved, "safetensors-one-file").write(str(tmp_path))
    flat, metadata = _flatten_optim_state_dict(saved)
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == set(flat)
        assert set(json.loads(file.metadata()["non_tensor_keys"])) == set(metadata["non_tensor_keys"])


def optimizers():
    """Two optimizers in the same state."""
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in Recipe().shapes]
    optimizer = make_optimizer(Recipe(), parameters)
    optimizer.load_state_dict(saved_natively(Recipe()))
    return optimizer, twin_of(optimizer)


CHANGES = {
    "an entry is gone": lambda optimizer, p: optimizer.state.pop(p),
    "a key is gone": lambda optimizer, p: optimizer.state[p].pop("step"),
    "a key is new": lambda optimizer, p: optimizer.state[p].update(new=1),
    "one bit": lambda optimizer, p: optimizer.state[p]["exp_avg"].view(torch.int32).view(-1)[0].bitwise_xor_(1),
    "the sign of zero": lambda optimizer, p: optimizer.state[p]["exp_avg"].mul_(0).neg_(),
    "another dtype": lambda optimizer, p: optimizer.state[p].update(step=optimizer.state[p]["step"].double()),
    "a number for a tensor": lambda optimizer, p: optimizer.state[p].update(step=3),
    "another shape": lambda optimizer, p: optimizer.state[p].update(exp_avg=optimizer.state[p]["exp_avg"].flatten()),
    "state of no parameter": lambda optimizer, p: optimizer.state.update({"global": 1}),
    "state of a foreign tensor": lambda optimizer, p: optimizer.state.update({torch.ones(1): {}}),
    "a learning rate": lambda optimizer, p: optimizer.param_groups[0].update(lr=0.5),
    "True for 1": lambda optimizer, p: optimizer.param_groups[0].update(weight_decay=False),
    "a default": lambda optimizer, p: optimizer.defaults.update(lr=0.5),
    "a group": lambda optimizer, p: optimizer.param_groups.pop(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_difference_is_found(change):
    optimizer, twin = optimizers()
    assert differences(look_at(twin), look_at(optimizer)) == []
    CHANGES[change](optimizer, optimizer.param_groups[0]["params"][0])
    assert differences(look_at(twin), look_at(optimizer)) != []


def test_looking_changes_nothing():
    optimizer = make_optimizer(Recipe(), [torch.nn.Parameter(torch.ones(shape)) for shape in Recipe().shapes])
    look_at(optimizer)
    assert len(optimizer.state) == 0


def test_twin_is_independent():
    optimizer, twin = optimizers()
    before = look_at(twin)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert differences(before, look_at(twin)) == []


def test_views_and_shared_storages_are_found():
    optimizer, _ = optimizers()
    state = optimizer.state[optimizer.param_groups[0]["params"][0]]
    whole = torch.zeros(100)
    state["exp_avg"], state["exp_avg_sq"] = whole[:12].view(4, 3), whole[12:24].view(4, 3)
    lines = "\n".join(loose_storages(optimizer))
    assert "400 alive" in lines
    assert "shares its storage" in lines


def test_replaced_attributes_are_put_back_as_they_were():
    class Base:
        inherited = 1

    class Derived(Base):
        own = 2

    replacements = Replacements()
    for name in ("inherited", "own", "absent"):
        replacements.put(Derived, name, 3)
    assert (Derived.inherited, Derived.own, Derived.absent) == (3, 3, 3)
    replacements.restore()
    assert "inherited" not in vars(Derived) and Derived.inherited == 1
    assert Derived.own == 2
    assert not hasattr(Derived, "absent")
