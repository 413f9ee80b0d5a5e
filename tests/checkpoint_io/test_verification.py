"""Loading compares the files of a checkpoint with their manifest, and with their checksums if that is asked for."""

import copy
import io
import json
import os
import shutil
import sys

import pytest
import torch
from test_fresh_save import INDEX, ended_at, is_one_of, save, trained

from colossalai_fork.checkpoint_io import GeneralCheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore import progress
from colossalai_fork.checkpoint_io.optimizer_restore.destination import Destination
from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointDamagedError
from colossalai_fork.checkpoint_io.optimizer_restore.files.contents import VARIABLE
from colossalai_fork.checkpoint_io.optimizer_restore.files.manifest import MANIFEST
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import open_sharded
from colossalai_fork.checkpoint_io.optimizer_restore.restore import restore
from colossalai_fork.checkpoints.manifest import write_manifest
from colossalai_fork.checkpoints.opened import Checkpoint
from colossalai_fork.gate.contract.comparison import differences
from colossalai_fork.gate.workers.outcomes import Status
from colossalai_fork.gate.workers.pool import WorkerPool
from colossalai_fork.gate.workers.worker import Call


def flip_a_bit(path, tensor):
    """Change one bit of a tensor in a file."""
    data = bytearray(path.read_bytes())
    data[data.index(tensor.numpy().tobytes()) + 1] ^= 4
    path.write_bytes(data)


def load(optimizer, path):
    GeneralCheckpointIO().load_optimizer(optimizer, str(path))


def refused(path, optimizer=None):
    """Load, which must be refused and change nothing. Return the error's text."""
    optimizer = optimizer or trained(7)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(CheckpointDamagedError) as caught:
        load(optimizer, path)
    assert differences(before, optimizer.state_dict()) == []
    assert "The optimizer is unchanged." in str(caught.value)
    return str(caught.value)


@pytest.fixture
def optimizer():
    return trained(1)


@pytest.fixture
def checkpoint(tmp_path, optimizer):
    save(optimizer, tmp_path / "checkpoint", size_per_shard=1024)
    return tmp_path / "checkpoint"


@pytest.fixture
def shard(checkpoint):
    (shard,) = (file for file in checkpoint.glob("*.bin") if "group" not in file.name)
    return shard


@pytest.fixture
def full(monkeypatch):
    monkeypatch.setenv(*VARIABLE)


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_flipped_bit_is_refused_if_contents_are_compared(
    checkpoint, shard, optimizer, full, has_manifest, monkeypatch
):
    if has_manifest:
        write_manifest(Checkpoint(checkpoint))
    load(trained(7), checkpoint)
    flip_a_bit(shard, optimizer.state_dict()["state"][1]["exp_avg_sq"])
    text = refused(checkpoint)
    assert shard.name in text and "parameter id 1, state 'exp_avg_sq'" in text and "checksum" in text
    assert ("SHA-256" in text) == has_manifest
    # Not asked for, it costs nothing and notices nothing.
    monkeypatch.delenv(VARIABLE[0])
    load(trained(7), checkpoint)


def test_a_flipped_bit_of_the_groups(checkpoint, full):
    write_manifest(Checkpoint(checkpoint))
    (groups,) = checkpoint.glob("*group*")
    data = groups.read_bytes()
    groups.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    assert groups.name in refused(checkpoint)


def test_sizes_are_always_compared(checkpoint, shard):
    write_manifest(Checkpoint(checkpoint))
    states = torch.load(shard, weights_only=True)
    states[0]["more"] = torch.zeros(100)
    size = shard.stat().st_size
    torch.save(states, shard)
    text = refused(checkpoint)
    assert f"expected {size}, found {shard.stat().st_size}" in text and shard.name in text


def test_files_that_the_manifest_does_not_know(checkpoint):
    manifest = write_manifest(Checkpoint(checkpoint))
    with open(manifest) as file:
        content = json.load(file)
    content["files"]["other.bin"] = content["files"].pop("pytorch_optim-00001.bin")
    with open(manifest, "w") as file:
        json.dump(content, file)
    text = refused(checkpoint)
    assert "the manifest does not list the file" in text and "no part of the checkpoint: other.bin" in text


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "other"}', "[" * 100_000])
def test_a_manifest_that_cannot_be_read(checkpoint, content):
    (checkpoint / (INDEX + MANIFEST)).write_text(content)
    assert "the manifest cannot be read" in refused(checkpoint)


def test_one_file(tmp_path, optimizer, full):
    path = tmp_path / "optimizer.bin"
    torch.save(optimizer.state_dict(), path)
    write_manifest(Checkpoint(path))
    loaded = trained(7)
    load(loaded, path)
    assert differences(optimizer.state_dict(), loaded.state_dict()) == []
    flip_a_bit(path, optimizer.state_dict()["state"][2]["exp_avg"])
    assert "parameter id 2, state 'exp_avg'" in refused(path)
    # Saving into one file removes what is about the file of before.
    GeneralCheckpointIO().save_optimizer(trained(2), str(path))
    load(loaded, path)


class Own(torch.optim.Adam):
    """Has a state dict of its own making."""

    def state_dict(self):
        return {"all": super().state_dict()}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict["all"])


def test_a_layout_of_its_own(tmp_path, full):
    optimizer = trained(1)
    optimizer.__class__ = Own
    path = tmp_path / "optimizer.bin"
    torch.save(optimizer.state_dict(), path)
    flip_a_bit(path, optimizer.state_dict()["all"]["state"][2]["exp_avg"])
    other = trained(7)
    other.__class__ = Own
    refused(path, other)


def test_ended_at_any_operation_a_manifest_is_never_in_the_way(tmp_path, full):
    old, new = trained(1), trained(2, lr=0.2)
    number, seen = 0, []
    while True:
        path = tmp_path / "checkpoint"
        save(old, path)
        write_manifest(Checkpoint(path))
        went_on = not ended_at(number, lambda: save(new, path))
        loaded = trained(7)
        load(loaded, path)
        seen += [is_one_of(path, old, new)]
        assert differences((old, new)[seen[-1][0]].state_dict(), loaded.state_dict()) == []
        shutil.rmtree(path)
        if went_on:
            break
        number += 1
    assert [0] in seen and [1] in seen


class OnRanks:
    """Runs on two ranks, each with files of its own."""

    def one_rank_with_a_flipped_bit(self, has_manifest):
        """Rank 1's file has a flipped bit."""
        os.environ.update([VARIABLE])
        path = os.path.join(self.directory, f"of-rank-{self.rank}")
        saved = trained(1)
        save(saved, path, size_per_shard=1024)
        if has_manifest:
            write_manifest(Checkpoint(path))
        ours, group = trained(7), torch.distributed.group.WORLD
        before = copy.deepcopy(ours.state_dict())
        if self.rank == 1:
            import pathlib

            flip_a_bit(pathlib.Path(path, "pytorch_optim-00001.bin"), saved.state_dict()["state"][0]["exp_avg"])
        with pytest.raises(CheckpointDamagedError) as caught:
            restore(Destination(ours, group), lambda: open_sharded(os.path.join(path, INDEX)))
        assert "rank 1: " in str(caught.value) and "rank 0: " not in str(caught.value)
        assert "parameter id 0, state 'exp_avg'" in str(caught.value)
        assert differences(before, ours.state_dict()) == []
        del os.environ[VARIABLE[0]]

    one_rank_with_a_flipped_bit.run_here = one_rank_with_a_flipped_bit


@pytest.mark.parametrize("has_manifest", [True, False])
def test_two_ranks(tmp_path, has_manifest):
    pool = WorkerPool()
    try:
        arguments = {"has_manifest": has_manifest}
        call = Call(__name__, __file__, "OnRanks", "one_rank_with_a_flipped_bit", arguments, str(tmp_path))
        outcome = pool.get(2, overlay=False).run(call)
    finally:
        pool.close()
    assert outcome.status is Status.HELD, outcome.describe()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("delay, is_terminal, shown", [(0, True, True), (2, True, False), (0, False, False)])
def test_progress(checkpoint, full, monkeypatch, delay, is_terminal, shown):
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "DELAY", delay)
    load(trained(7), checkpoint)
    assert ("loading the optimizer" in stream.getvalue()) == shown
    assert ("verifying the checkpoint" in stream.getvalue()) == shown
    assert shown or not stream.getvalue()


def test_one_line_at_the_end(checkpoint, monkeypatch):
    from colossalai.logging import get_dist_logger

    lines = []
    monkeypatch.setattr(type(get_dist_logger()), "info", lambda self, text, ranks=None: lines.append((text, ranks)))
    load(trained(7), checkpoint)
    ((line, ranks),) = lines
    assert ranks == [0] and line.startswith("loaded the optimizer: 3 parameters, ") and line.endswith(" seconds")
    count = int(line.split(" parameters, ")[1].split()[0].replace(",", ""))
    # Headers of a zip file may be read in more than one piece.
    assert 0 < count < 2 * sum(file.stat().st_size for file in checkpoint.iterdir())
    # State dicts in memory are handed over all the time.
    lines.clear()
    GeneralCheckpointIO().save_optimizer(trained(1), str(checkpoint), shard=True)
    assert lines == []
