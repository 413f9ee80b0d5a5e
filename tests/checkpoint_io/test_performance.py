"""Time and memory, compared with upstream's loader in the same run."""

import ctypes
import statistics
import threading
import time

import colossalai.checkpoint_io as upstream
import pytest
import torch

from colossalai_fork.checkpoint_io import GeneralCheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore.destination import Destination
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import SavedShard, SavedState
from colossalai_fork.checkpoint_io.optimizer_restore.validation import validate
from colossalai_fork.gate.cpu import stand_in

MEBIBYTE = 2**20


@pytest.fixture(scope="module", autouse=True)
def freed_blocks_go_back():
    """Have every load pay for the memory pages of the tensors that it makes.

    Otherwise the C library gives freed blocks back or keeps them for the next tensors, depending on all that was freed
    before. A gigabyte of new pages takes several times as long as copying it, so chance would decide which loader is slower.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # The threshold that it starts with; setting it keeps it from rising.
        mmap_threshold = -3
        mallopt(mmap_threshold, 128 * 1024)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    # Upstream's loader asks the accelerator to synchronise, which its CPU accelerator refuses.
    with stand_in.stand_ins():
        yield
    torch.set_num_threads(before)


def trained_adam(count, elements):
    params = [torch.nn.Parameter(torch.zeros(elements)) for _ in range(count)]
    optimizer = torch.optim.Adam(params)
    for param in params:
        param.grad = torch.ones(elements)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def seconds(checkpoint_io, optimizer, path):
    # Processor time: both loaders work from the page cache, and other test processes share the cores.
    start = time.process_time()
    checkpoint_io.load_optimizer(optimizer, str(path))
    return time.process_time() - start


def medians(checkpoint_ios, optimizer, path, repeats=5):
    """Alternate, so that a slow moment of the machine hits every loader."""
    times = [[seconds(checkpoint_io, optimizer, path) for checkpoint_io in checkpoint_ios] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times)]


def test_many_small_parameters_load_no_slower_than_upstream(tmp_path):
    optimizer = trained_adam(16_000, 2)
    upstream.GeneralCheckpointIO().save_optimizer(optimizer, str(tmp_path), shard=True)
    theirs, ours = medians([upstream.GeneralCheckpointIO(), GeneralCheckpointIO()], optimizer, tmp_path)
    print(f"16,000 parameters: upstream {theirs:.2f} s, ours {ours:.2f} s")
    assert ours <= theirs


def test_time_grows_with_the_number_of_parameters_not_its_square(tmp_path):
    times = []
    for count in (8_000, 32_000):
        optimizer = trained_adam(count, 2)
        path = tmp_path / str(count)
        GeneralCheckpointIO().save_optimizer(optimizer, str(path), shard=True)
        times.append(medians([GeneralCheckpointIO()], optimizer, path, repeats=3)[0])
    print(f"four times the parameters take {times[1] / times[0]:.1f} times as long")
    assert times[1] < 8 * times[0]


def test_time_grows_with_the_number_of_groups_not_its_square(tmp_path):
    times = []
    for count in (1_000, 4_000):
        optimizer = torch.optim.Adam([{"params": [torch.nn.Parameter(torch.zeros(2))]} for _ in range(count)])
        for group in optimizer.param_groups:
            group["params"][0].grad = torch.ones(2)
        optimizer.step()
        path = tmp_path / f"{count}.bin"
        GeneralCheckpointIO().save_optimizer(optimizer, str(path))
        times.append(medians([GeneralCheckpointIO()], optimizer, path, repeats=3)[0])
    print(f"four times the groups take {times[1] / times[0]:.1f} times as long")
    assert times[1] < 8 * times[0]


def test_validation_grows_with_the_number_of_shards_not_its_square():
    def seconds_for(count):
        optimizer = trained_adam(count, 2)
        saved = optimizer.state_dict()
        # In memory, because opening files takes most of the time otherwise.
        shards = [
            SavedShard(f"{param_id}.bin", lambda states={param_id: state}: (states, True))
            for param_id, state in saved["state"].items()
        ]
        index = {param_id: f"{param_id}.bin" for param_id in saved["state"]}
        state = SavedState("the checkpoint", saved["param_groups"], "the checkpoint", shards, index)
        problems = []
        start = time.process_time()
        validate(state, Destination(optimizer), problems)
        assert problems == []
        return time.process_time() - start

    times = [statistics.median(seconds_for(count) for _ in range(3)) for count in (1_000, 4_000)]
    print(f"four times the shards take {times[1] / times[0]:.1f} times as long")
    assert times[1] < 8 * times[0]


class PeakMemory:
    """Measures how far anonymous memory rises above where it was."""

    def __enter__(self):
        self._done = threading.Event()
        self._start = self.peak = self._now()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._done.set()
        self._thread.join()
        self.rise = self.peak - self._start

    def _watch(self):
        while not self._done.wait(0.001):
            self.peak = max(self.peak, self._now())

    @staticmethod
    def _now():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


@pytest.mark.parametrize("layout", ["sharded", "unsharded"])
def test_a_gigabyte_of_state(tmp_path, layout):
    optimizer = trained_adam(20, 6_250_000)
    shard_size = 96
    saver = upstream.GeneralCheckpointIO()
    path = tmp_path / ("checkpoint" if layout == "sharded" else "state.bin")
    saver.save_optimizer(optimizer, str(path), shard=layout == "sharded", size_per_shard=shard_size)
    with PeakMemory() as memory:
        GeneralCheckpointIO().load_optimizer(optimizer, str(path))
    theirs, ours = medians([upstream.GeneralCheckpointIO(), GeneralCheckpointIO()], optimizer, path)
    print(f"{layout}: {memory.rise / MEBIBYTE:.0f} MiB extra; upstream {theirs:.2f} s, ours {ours:.2f} s")
    assert memory.rise <= shard_size * MEBIBYTE
    assert ours <= 1.1 * theirs
