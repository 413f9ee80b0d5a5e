"""``colossalai-fork inspect``."""

import json

import pytest
import torch
from click.testing import CliRunner
from colossalai.checkpoint_io import GeneralCheckpointIO

from colossalai_fork import cli


def adam():
    """An Adam that has state for two of its three parameters."""
    params = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (4,), ())]
    optimizer = torch.optim.Adam([{"params": params[:2]}, {"params": params[2:], "lr": 0.25}])
    for param in params[:2]:
        param.grad = torch.ones_like(param)
    optimizer.step()
    return optimizer


def inspect(path):
    return CliRunner().invoke(cli.main, ["inspect", str(path)], env={"COLUMNS": "160"})


@pytest.fixture
def checkpoint(tmp_path):
    GeneralCheckpointIO().save_optimizer(adam(), str(tmp_path / "checkpoint"), shard=True)
    return tmp_path / "checkpoint"


@pytest.fixture
def shard(checkpoint):
    (shard,) = (file for file in checkpoint.glob("*.bin") if "group" not in file.name)
    return shard


@pytest.mark.parametrize("layout", ["sharded", "one file"])
def test_a_sound_checkpoint(checkpoint, tmp_path, layout):
    if layout == "one file":
        checkpoint = tmp_path / "optimizer.bin"
        torch.save(adam().state_dict(), checkpoint)
    result = inspect(checkpoint)
    assert result.exit_code == 0, result.output
    assert "The checkpoint is sound." in result.output
    assert "lr=0.25" in result.output and "lr=0.001" in result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["exp_avg", "float32", "2"] in rows
    assert ["step", "float32,", "one", "number", "2"] in rows


def test_what_is_wrong_is_said(checkpoint, shard):
    states = torch.load(shard, weights_only=True)
    states[0]["exp_avg_sq"] = torch.ones(7)
    states[9] = {}
    torch.save(states, shard)
    result = inspect(checkpoint)
    assert result.exit_code == 1
    assert "3 problems" in result.output
    assert (
        "parameter id 0, state 'exp_avg': the state does not have the parameter's shape (expected (7,), found (2, 3))"
        in (result.output)
    )
    assert "parameter id 9: no parameter group has this id" in result.output
    assert "parameter id 9: the file holds an id that the index does not expect there" in result.output


def test_a_shard_that_cannot_be_read(checkpoint, shard):
    shard.write_bytes(shard.read_bytes()[:100])
    result = inspect(checkpoint)
    assert result.exit_code == 1
    assert shard.name in result.output and "1 problem\n" in result.output


def test_a_directory_without_an_index(checkpoint):
    (index,) = checkpoint.glob("*.json")
    index.unlink()
    result = inspect(checkpoint)
    assert result.exit_code == 1 and "the directory holds no index file" in result.output


def test_groups_that_are_no_groups(checkpoint):
    (index,) = checkpoint.glob("*.json")
    name = json.loads(index.read_text())["metadata"]["param_groups"]
    torch.save({"no": "list"}, checkpoint / name)
    result = inspect(checkpoint)
    assert result.exit_code == 1 and "the parameter groups are not a list" in result.output
