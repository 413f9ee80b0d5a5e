"""Opening a sharded checkpoint: whatever is wrong with its index is said, with the name of the file."""

import json
import os

import pytest
import torch

from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_file import UnreadableFileError
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import (
    normalised_id,
    open_sharded,
    open_unsharded,
)


def write(directory, index):
    path = directory / "pytorch_optim.bin.index.json"
    path.write_text(index if isinstance(index, str) else json.dumps(index))
    torch.save([{"params": [0]}], directory / "groups.bin")
    return str(path)


@pytest.mark.parametrize(
    "index",
    [
        "[" * 100_000,
        {"metadata": {"param_groups": "gro\0ups.bin"}, "weight_map": {}},
        {"metadata": {"param_groups": "gro\ud800ups.bin"}, "weight_map": {}},
    ],
    ids=["deep", "null", "surrogate"],
)
def test_an_index_that_cannot_be_followed_is_a_problem_of_a_named_file(tmp_path, index):
    saved = open_sharded(write(tmp_path, index))
    assert [problem.damaged for problem in saved.problems] == [True]
    assert saved.problems[0].file.startswith(str(tmp_path))


@pytest.mark.parametrize("name", ["\u00b2", "9" * 6000, "01", "-1", "1.0", " 1", ""])
def test_a_name_that_is_no_id_stays_a_name(name):
    assert normalised_id(name) == name


@pytest.mark.parametrize("number", [0, 7, 10, 2**63, 10**30])
def test_a_number_in_a_name_is_an_id(number):
    assert normalised_id(str(number)) == number


def opened_shard(directory, sharded):
    """Write a checkpoint of one shard and open it, as validation does."""
    states = {0: {"a": torch.zeros(5000)}}
    if sharded:
        path = directory / "shard.bin"
        torch.save(states, path)
        index = {"metadata": {"param_groups": "groups.bin"}, "weight_map": {"0": path.name}}
        saved = open_sharded(write(directory, index))
    else:
        path = directory / "file.bin"
        torch.save({"state": states, "param_groups": [{"params": [0]}]}, path)
        saved = open_unsharded(path)
    assert saved.problems == []
    (shard,) = saved.shards
    shard.states()
    return shard, path


@pytest.mark.parametrize("sharded", [True, False])
def test_a_file_that_is_cut_short_before_it_is_loaded_is_not_touched(tmp_path, sharded):
    shard, path = opened_shard(tmp_path, sharded)
    # Reading what is no longer there of a mapped file ends the process.
    os.truncate(path, 100)
    with pytest.raises(UnreadableFileError, match="written to since"):
        shard.states()


@pytest.mark.parametrize("sharded", [True, False])
def test_a_file_that_is_replaced_before_it_is_loaded_is_what_it_was(tmp_path, sharded):
    shard, path = opened_shard(tmp_path, sharded)
    (tmp_path / "new").write_bytes(b"something else")
    os.replace(tmp_path / "new", path)
    assert torch.equal(shard.states()[0]["a"], torch.zeros(5000))
    path.unlink()
    assert torch.equal(shard.states()[0]["a"], torch.zeros(5000))
