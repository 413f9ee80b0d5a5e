import hashlib
import json

import pytest
import torch
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.checkpoint_io.optimizer_restore.files.contents import altered_contents
from colossalai.checkpoint_io.optimizer_restore.files.index_file import is_sharded
from colossalai.checkpoint_io.optimizer_restore.files.saved_state import open_sharded


@pytest.fixture
def checkpoint(tmp_path):
    params = [torch.nn.Parameter(torch.ones(300)) for _ in range(2)]
    optimizer = torch.optim.Adam(params)
    for number, param in enumerate(params):
        param.grad = torch.full((300,), number + 0.5)
    optimizer.step()
    GeneralCheckpointIO().save_optimizer(optimizer, str(tmp_path / "optimizer"), shard=True)
    return tmp_path / "optimizer"


def problems_of(checkpoint):
    saved = open_sharded(is_sharded(checkpoint)[1])
    assert saved.problems == []
    for shard in saved.shards:
        shard.states()
    found = altered_contents(saved, saved.shards)
    saved.close()
    return found


def write_manifest(checkpoint):
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for file in checkpoint.iterdir()
    }
    (index,) = checkpoint.glob("*.json")
    content = {"format": "optimizer checkpoint manifest", "version": 1, "files": files}
    (checkpoint / (index.name + ".manifest")).write_text(json.dumps(content))


def flip_a_bit_of(checkpoint, value):
    (shard,) = (file for file in checkpoint.glob("*.bin") if "group" not in file.name)
    data = bytearray(shard.read_bytes())
    data[data.index(value.numpy().tobytes()) + 40] ^= 1
    shard.write_bytes(data)
    return str(shard)


@pytest.mark.parametrize("manifest", [False, True])
def test_sound_checkpoints(checkpoint, manifest):
    if manifest:
        write_manifest(checkpoint)
    assert problems_of(checkpoint) == []


def test_a_manifest_notices_a_flipped_bit(checkpoint):
    write_manifest(checkpoint)
    shard = flip_a_bit_of(checkpoint, torch.full((300,), 1.5) * 0.1)
    assert any(problem.file == shard and "SHA-256" in str(problem) for problem in problems_of(checkpoint))


# Before torch 1.6 files were no archives, and had no checksums.
def test_the_checksums_of_an_archive_notice_a_flipped_bit(checkpoint):
    shard = flip_a_bit_of(checkpoint, torch.full((300,), 1.5) * 0.1)
    (problem,) = problems_of(checkpoint)
    assert (problem.file, problem.param_id, problem.key) == (shard, 1, "exp_avg")
