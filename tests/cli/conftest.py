"""A small checkpoint to look at."""

import pytest
from colossalai.checkpoint_io import GeneralCheckpointIO
from small_checkpoint import adam


@pytest.fixture
def checkpoint(tmp_path):
    GeneralCheckpointIO().save_optimizer(adam(), str(tmp_path / "checkpoint"), shard=True)
    return tmp_path / "checkpoint"


@pytest.fixture
def shard(checkpoint):
    (shard,) = (file for file in checkpoint.glob("*.bin") if "group" not in file.name)
    return shard
