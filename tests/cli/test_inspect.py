"""``colossalai-fork inspect``."""

import json
import os
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner
from small_checkpoint import adam

from colossalai_fork import cli
from colossalai_fork.checkpoint_io.optimizer_restore.files import sources


def inspect(*arguments):
    return CliRunner().invoke(cli.main, ["inspect", *map(str, arguments)], env={"COLUMNS": "160"})


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
    assert ["exp_avg", "float32", "2", "40"] in rows
    assert ["step", "float32,", "one", "number", "2", "8"] in rows


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


def test_json(checkpoint, shard):
    found = json.loads(inspect("--json", checkpoint).output)
    assert found["sound"] and found["problems"] == [] and found["manifest"] is None
    assert [group["parameters"] for group in found["groups"]] == [2, 1]
    assert found["groups"][1]["settings"]["lr"] == 0.25
    assert {"key": "exp_avg", "kind": "float32", "parameters": 2, "bytes": 40} in found["states"]
    files = {file["name"]: (file["role"], file["bytes"], file["ids"]) for file in found["files"]}
    assert files[shard.name] == ("states", shard.stat().st_size, 2)
    assert sorted(role for role, _, _ in files.values()) == ["groups", "index", "states"]
    shard.unlink()
    found = json.loads(inspect("--json", checkpoint).output)
    (problem,) = found["problems"]
    assert not found["sound"] and problem["file"] == str(shard) and problem["damaged"]


def test_one_parameter(checkpoint, shard):
    found = json.loads(inspect("--json", "--param", 1, checkpoint).output)
    assert (found["group"], found["file"], found["problems"]) == (0, shard.name, [])
    assert [value["key"] for value in found["state"]] == ["step", "exp_avg", "exp_avg_sq"]
    assert found["state"][1] == {"key": "exp_avg", "kind": "float32", "shape": [4], "bytes": 16}
    result = inspect("--param", 1, checkpoint)
    assert result.exit_code == 0 and "(4,)" in result.output and shard.name in result.output
    assert "without state" in inspect("--param", 2, checkpoint).output
    result = inspect("--param", 9, checkpoint)
    assert result.exit_code == 2 and "the checkpoint has no parameter 9" in result.output


def test_no_byte_of_a_large_tensor_is_read(tmp_path):
    params = [torch.nn.Parameter(torch.zeros(1 << 20))]
    optimizer = torch.optim.Adam(params)
    params[0].grad = torch.ones(1 << 20)
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.bin")
    before = sources.bytes_read()
    for options in ((), ("--json",), ("--param", 0)):
        assert inspect(*options, tmp_path / "optimizer.bin").exit_code == 0
    assert 0 < sources.bytes_read() - before < 100_000


def test_a_path_that_does_not_exist(tmp_path):
    assert inspect(tmp_path / "nothing").exit_code == 2


def test_an_id_in_two_groups(tmp_path):
    state_dict = adam().state_dict()
    state_dict["param_groups"][1]["params"] = [0]
    torch.save(state_dict, tmp_path / "optimizer.bin")
    result = inspect(tmp_path / "optimizer.bin")
    assert result.exit_code == 1 and "parameter id 0: the id stands for two different parameters" in result.output


@pytest.mark.parametrize("nested", [False, True])
def test_a_tensor_without_data(tmp_path, nested):
    state_dict = adam().state_dict()
    tensor = torch.ones(2, 3, device="meta")
    state_dict["state"][0]["exp_avg"] = [tensor] if nested else tensor
    torch.save(state_dict, tmp_path / "optimizer.bin")
    result = inspect(tmp_path / "optimizer.bin")
    assert result.exit_code == 1 and "on the meta device" in result.output


TEXTS = {
    "markup": "[/foo] [red]",
    "half a character": "\ud800",
    "escape": "\x1b]0;title\x07\x1b[31m",
    "unicode": "\u00e9\u6f22",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_texts_of_any_kind_are_printed(tmp_path, text, encoding):
    """In the settings of a group, a state's name and a problem; on a terminal that knows few characters, too."""
    state_dict = adam().state_dict()
    state_dict["param_groups"][0]["note"] = text
    state_dict["state"][0][text] = torch.ones(2, 3)
    state_dict["state"][text] = {}
    state_dict["state"][0]["exp_avg"] = torch.ones(7)
    torch.save(state_dict, tmp_path / "optimizer.bin")
    script = "from colossalai_fork.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, "inspect", str(tmp_path / "optimizer.bin")],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert result.returncode == 1 and b"Traceback" not in result.stderr, result.stderr
    assert result.stdout.decode(encoding).replace("\n", "").isprintable()


def test_a_name_of_a_file_is_printed(checkpoint, shard):
    (index,) = checkpoint.glob("*.json")
    name = "[foo]\x1b[31m.bin"
    shard.rename(checkpoint / name)
    index.write_text(index.read_text().replace(shard.name, json.dumps(name)[1:-1]))
    result = inspect(checkpoint)
    assert result.exit_code == 0, result.output
    assert "[foo]\\x1b" in result.output and result.output.replace("\n", "").isprintable()
