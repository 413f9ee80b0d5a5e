import json
import os
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from colossalai.checkpoint_io import GeneralCheckpointIO
from torch.optim import Adam

INDEX = "pytorch_optim.bin.index.json"


def trained(seed, lr):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = Adam(model.parameters(), lr=lr)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return optimizer


def save(optimizer, checkpoint):
    GeneralCheckpointIO().save_optimizer(optimizer, str(checkpoint), shard=True, size_per_shard=1e-9)


def saved(checkpoint):
    index = json.loads(Path(checkpoint, INDEX).read_text())
    groups = torch.load(Path(checkpoint, index["metadata"]["param_groups"]), weights_only=True)
    state = {}
    for param_id, shard in index["weight_map"].items():
        state[param_id] = torch.load(Path(checkpoint, shard), weights_only=True)[int(param_id)]["exp_avg"].tolist()
    return groups[0]["lr"], state


@pytest.mark.parametrize("operation", range(14))
def test_interrupted_saving_leaves_the_old_checkpoint_or_the_new_one(tmp_path, monkeypatch, operation):
    old, new = trained(seed=0, lr=0.1), trained(seed=1, lr=0.2)
    save(new, tmp_path / "new")
    save(old, tmp_path / "checkpoint")
    before, after = saved(tmp_path / "checkpoint"), saved(tmp_path / "new")
    count = 0

    def interrupted(function):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count > operation:
                raise KeyboardInterrupt
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for owner, name in ((torch, "save"), (os, "replace"), (os, "unlink"), (os, "remove")):
            patch.setattr(owner, name, interrupted(getattr(owner, name)))
        try:
            save(deepcopy(new), tmp_path / "checkpoint")
        except KeyboardInterrupt:
            pass
    assert saved(tmp_path / "checkpoint") in (before, after)

    save(new, tmp_path / "checkpoint")
    assert saved(tmp_path / "checkpoint") == after
    assert len(os.listdir(tmp_path / "checkpoint")) == len(os.listdir(tmp_path / "new"))
