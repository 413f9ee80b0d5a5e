"""A parameter that two pipeline stages share is saved by both, and the index names the file of one."""

import json

import pytest
import torch

from colossalai_fork.checkpoint_io import GeneralCheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointDamagedError

FILES = ["pytorch_optim-stage-00001-shard-00001.bin", "pytorch_optim-stage-00002-shard-00001.bin"]


def trained(value):
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9)
    for param in params:
        param.grad = torch.full_like(param, value)
    optimizer.step()
    return optimizer


def write(directory, files, index, content=None):
    """Write a checkpoint whose shards hold ids (0, 1) and (0, 2)."""
    saved = trained(2.0).state_dict()
    for name, ids in zip(files, ((0, 1), (0, 2))):
        states = {each: dict(saved["state"][each]) for each in ids}
        if content is not None and 0 in states:
            states[0]["momentum_buffer"] = torch.full((2,), content[name])
        torch.save(states, directory / name)
    torch.save(saved["param_groups"], directory / "groups.bin")
    content = {"metadata": {"param_groups": "groups.bin"}, "weight_map": index}
    (directory / "pytorch_optim.bin.index.json").write_text(json.dumps(content))
    return directory


def load(directory):
    optimizer = trained(1.0)
    GeneralCheckpointIO().load_optimizer(optimizer, directory)
    return [optimizer.state[param]["momentum_buffer"].tolist() for param in optimizer.param_groups[0]["params"]]


@pytest.mark.parametrize("named", [0, 1])
def test_the_file_that_the_index_names_counts(tmp_path, named):
    index = {"0": FILES[named], "1": FILES[0], "2": FILES[1]}
    write(tmp_path, FILES, index, {FILES[0]: 7.0, FILES[1]: 8.0})
    assert load(tmp_path) == [[7.0 + named] * 2, [2.0] * 2, [2.0] * 2]


def test_the_prefix_of_the_files_may_speak_of_stages_too(tmp_path):
    files = [f"second-stage-2-run.{name}" for name in FILES]
    write(tmp_path, files, {"0": files[1], "1": files[0], "2": files[1]})
    assert load(tmp_path) == [[2.0] * 2] * 3


@pytest.mark.parametrize(
    "files",
    [
        ["pytorch_optim-00001.bin", "pytorch_optim-00002.bin"],
        ["pytorch_optim-stage-00001-shard-00001.bin", "pytorch_optim-stage-00001-shard-00002.bin"],
        ["pytorch_optim-stage-00001-shard-00001.bin", "pytorch_optim-00002.bin"],
    ],
)
def test_one_stage_does_not_save_an_id_twice(tmp_path, files):
    write(tmp_path, files, {"0": files[0], "1": files[0], "2": files[1]})
    with pytest.raises(CheckpointDamagedError, match="does not expect there"):
        load(tmp_path)


def test_the_file_that_the_index_names_has_to_hold_it(tmp_path):
    write(tmp_path, FILES, {"0": FILES[0], "1": FILES[0], "2": FILES[1]})
    states = torch.load(tmp_path / FILES[0], weights_only=True)
    del states[0]
    torch.save(states, tmp_path / FILES[0])
    with pytest.raises(CheckpointDamagedError, match="holds this id, but it does not"):
        load(tmp_path)
