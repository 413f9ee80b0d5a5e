"""What a load reads, opens, allocates and computes, counted. Seconds are the benchmark's: they depend on the machine."""

import collections
import gc
import itertools
import json
import os
import sys
import tracemalloc

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from colossalai_fork.checkpoint_io import GeneralCheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore import plan
from colossalai_fork.checkpoint_io.optimizer_restore.destination import Destination
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import SavedShard, SavedState
from colossalai_fork.checkpoint_io.optimizer_restore.files.sources import FileSource
from colossalai_fork.checkpoint_io.optimizer_restore.validation import validate

MEBIBYTE = 2**20
#: Four times the parameters may cost a little more than four times the work, and not sixteen times.
LINEAR = 4.4


def trained_adam(count, elements, groups=1):
    params = [torch.nn.Parameter(torch.zeros(elements)) for _ in range(count)]
    optimizer = torch.optim.Adam([{"params": params[start::groups]} for start in range(groups)])
    for param in params:
        param.grad = torch.ones(elements)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def saved(optimizer, path, shard=True, size_per_shard=1024):
    GeneralCheckpointIO().save_optimizer(optimizer, str(path), shard=shard, size_per_shard=size_per_shard)
    return str(path)


def calls_of(action):
    """Count the calls, of Python's functions and of C's, that an action makes in this thread."""
    calls = collections.Counter()
    gc.collect()
    gc.disable()
    sys.setprofile(lambda frame, event, argument: calls.update((event,)))
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls["call"] + calls["c_call"]


@pytest.fixture
def searched(monkeypatch):
    """How many parameters native code has looked through, to find the group of a parameter. That is one call each time."""
    counted = [0]
    original = torch.optim.Optimizer._process_value_according_to_param_policy

    def counting(param, value, param_id, param_groups, key=None):
        counted[0] += sum(len(group["params"]) for group in param_groups)
        return original(param, value, param_id, param_groups, key)

    monkeypatch.setattr(torch.optim.Optimizer, "_process_value_according_to_param_policy", staticmethod(counting))
    return counted


@pytest.mark.parametrize("shard", [True, False], ids=["sharded", "unsharded"])
@pytest.mark.parametrize("several", [False, True], ids=["one-group", "groups"])
def test_work_grows_with_the_number_of_parameters_not_its_square(tmp_path, searched, several, shard):
    works, searches = [], []
    for count in (200, 800):
        optimizer = trained_adam(count, 2, count if several else 1)
        path = saved(optimizer, tmp_path / str(count), shard)
        searched[0] = 0
        works.append(calls_of(lambda: GeneralCheckpointIO().load_optimizer(optimizer, path)))
        searches.append(searched[0])
    assert works[1] < LINEAR * works[0]
    assert 0 < searches[1] <= LINEAR * searches[0]


def test_validation_grows_with_the_number_of_shards_not_its_square():
    def work_for(count):
        optimizer = trained_adam(count, 2)
        state_dict = optimizer.state_dict()
        # In memory, because opening files takes most of the work otherwise.
        shards = [
            SavedShard(f"{param_id}.bin", lambda states={param_id: state}: states, keep=True)
            for param_id, state in state_dict["state"].items()
        ]
        index = {param_id: f"{param_id}.bin" for param_id in state_dict["state"]}
        opened = SavedState("the checkpoint", state_dict["param_groups"], "the checkpoint", shards, index)
        problems = []
        work = calls_of(lambda: validate(opened, Destination(optimizer), problems))
        assert problems == []
        return work

    few, many = work_for(200), work_for(800)
    assert many < LINEAR * few


@pytest.fixture
def reads(monkeypatch):
    """The bytes that are read of each file."""
    counted = collections.Counter()
    original = FileSource.read_into

    def counting(self, offset, buffer):
        counted[self.path] += len(buffer)
        return original(self, offset, buffer)

    monkeypatch.setattr(FileSource, "read_into", counting)
    return counted


@pytest.fixture
def openings():
    """How often each file is opened."""
    counted, counting = collections.Counter(), [True]

    def note(event, arguments):
        if counting and event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            counted[os.fsdecode(arguments[0])] += 1

    # Audit hooks stay for the life of the process; this one goes quiet.
    sys.addaudithook(note)
    yield counted
    counting.clear()


def test_every_file_is_opened_once_and_read_once(tmp_path, reads, openings):
    optimizer = trained_adam(8, MEBIBYTE // 4)
    path = saved(optimizer, tmp_path / "checkpoint", size_per_shard=4)
    openings.clear()
    GeneralCheckpointIO().load_optimizer(optimizer, path)
    sizes = {os.path.join(path, name): os.path.getsize(os.path.join(path, name)) for name in os.listdir(path)}
    assert len(sizes) > 4
    assert {name: openings[name] for name in sizes} == dict.fromkeys(sizes, 1)
    shards = {name: size for name, size in sizes.items() if name.endswith(".bin") and "group" not in name}
    # The list of a file's records is read to find them, and again with small tensors that lie beside it.
    too_much = {
        name: (reads[name], size) for name, size in shards.items() if not 0.9 * size < reads[name] < 1.02 * size
    }
    assert not too_much


class Allocations:
    """Follows the tensors' memory that torch's allocator gives out, and Python's own, while a block runs.

    Tensors that other threads make go unnoticed, unlike their buffers.

    Args:
        directory (pathlib.Path): for a file.

    Attributes:
        peak (int): most bytes at any time beyond those at the start: of torch, and of Python, together.
    """

    def __init__(self, directory):
        self._file = str(directory / "trace.json")

    def __enter__(self):
        gc.collect()
        tracemalloc.start()
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profile.__enter__()
        return self

    def __exit__(self, *exception):
        self._profile.__exit__(*exception)
        _, python = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self._profile.export_chrome_trace(self._file)
        with open(self._file) as file:
            changes = [event for event in json.load(file)["traceEvents"] if event.get("name") == "[memory]"]
        changes.sort(key=lambda event: event["ts"])
        torchs = max(itertools.accumulate((event["args"]["Bytes"] for event in changes), initial=0))
        self.peak = torchs + python


def test_allocations_are_noticed(tmp_path):
    with Allocations(tmp_path) as allocations:
        for _ in range(2):
            torch.zeros(MEBIBYTE)
        bytearray(MEBIBYTE)
    assert 5 * MEBIBYTE <= allocations.peak < 6 * MEBIBYTE


@pytest.mark.parametrize("layout", ["sharded", "unsharded"])
def test_extra_memory_is_at_most_a_shard(tmp_path, monkeypatch, layout):
    # 16 parameters with 2 MiB of state each, in shards of 4 MiB or in one file.
    optimizer = trained_adam(16, MEBIBYTE // 4)
    state = sum(value.nbytes for each in optimizer.state.values() for value in each.values())
    monkeypatch.setattr(plan, "MAX_BYTES_AHEAD", 4 * MEBIBYTE)
    path = saved(optimizer, tmp_path / "checkpoint", layout == "sharded", size_per_shard=5)
    # What was allocated before would be given back unnoticed.
    optimizer.state.clear()
    with Allocations(tmp_path) as allocations:
        for _ in ("fresh", "trained"):
            GeneralCheckpointIO().load_optimizer(optimizer, path)
    assert state < allocations.peak <= state + 5 * MEBIBYTE
