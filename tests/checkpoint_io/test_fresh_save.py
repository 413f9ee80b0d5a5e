"""Saving over an earlier save: ended anywhere, failing anywhere, and beside whatever else a directory may hold."""

import errno
import json
import os
import shutil
import signal
import sys

import pytest
import torch
from colossalai.checkpoint_io import GeneralCheckpointIO as UpstreamCheckpointIO

from colossalai_fork.checkpoint_io import GeneralCheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore import fresh_save
from colossalai_fork.gate.contract.comparison import differences
from colossalai_fork.gate.workers.outcomes import Status
from colossalai_fork.gate.workers.pool import WorkerPool
from colossalai_fork.gate.workers.worker import Call

INDEX = "pytorch_optim.bin.index.json"
#: What Python reports, before it happens, of what changes files.
CHANGES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
TINY = 1e-9


def trained(seed, count=3, lr=0.1):
    torch.manual_seed(seed)
    params = [torch.nn.Parameter(torch.randn(7)) for _ in range(count)]
    optimizer = torch.optim.Adam(params, lr=lr)
    for param in params:
        param.grad = torch.randn(7)
    optimizer.step()
    return optimizer


def save(optimizer, path, **options):
    GeneralCheckpointIO().save_optimizer(optimizer, str(path), shard=True, **{"size_per_shard": TINY, **options})


def loaded(path):
    """What a checkpoint holds, read by its index as upstream's loaders do."""
    path = str(path)
    index_path = path if path.endswith(".json") else os.path.join(path, INDEX)
    with open(index_path) as file:
        index = json.load(file)
    folder = os.path.dirname(index_path)
    state = {}
    for param_id, name in index["weight_map"].items():
        state[int(param_id)] = torch.load(os.path.join(folder, name), weights_only=True)[int(param_id)]
    groups = torch.load(os.path.join(folder, index["metadata"]["param_groups"]), weights_only=True)
    return {"state": state, "param_groups": groups}


def is_one_of(path, *optimizers):
    found = loaded(path)
    return [number for number, each in enumerate(optimizers) if not differences(each.state_dict(), found)]


def ended_at(number, run):
    """Run in a forked process that ends before its change of files of that number. Return whether it did."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            count = 0

            def end(*ignored):
                nonlocal count
                count += 1
                if count > number:
                    os.kill(os.getpid(), signal.SIGKILL)

            def audit(event, arguments):
                # Opening a file for reading changes nothing.
                if event in CHANGES and (event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                    end()

            write, flush = torch.save, os.fsync
            torch.save = lambda *arguments, **options: (end(), write(*arguments, **options))
            os.fsync = lambda descriptor: (end(), flush(descriptor))
            sys.addaudithook(audit)
            run()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("old_count, new_count", [(3, 3), (4, 2), (2, 4), (0, 2), (2, 0)])
def test_a_process_that_ends_at_any_operation(tmp_path, old_count, new_count):
    old, new = trained(1, max(old_count, 1), 0.1), trained(2, max(new_count, 1), 0.2)
    for optimizer, count in ((old, old_count), (new, new_count)):
        if not count:
            optimizer.state.clear()
    number, seen = 0, []
    while True:
        path = tmp_path / "checkpoint"
        save(old, path)
        went_on = not ended_at(number, lambda: save(new, path))
        seen += [is_one_of(path, old, new)]
        # The next save cleans up after it, too.
        save(new, path)
        assert is_one_of(path, old, new) == [1]
        assert not [name for name in os.listdir(path) if "saving" in name], os.listdir(path)
        assert len([name for name in os.listdir(path) if "optim-" in name]) == max(new_count, 1)
        shutil.rmtree(path)
        if went_on:
            break
        number += 1
    assert all(len(each) == 1 for each in seen) and seen == sorted(seen), seen
    assert seen[0] == [0] and seen[-1] == [1] and number > 20


def test_the_test_notices_the_mixture_that_upstream_leaves(tmp_path):
    old, new = trained(1), trained(2, lr=0.2)
    mixed, path = 0, tmp_path / "checkpoint"

    def upstream_saves(optimizer):
        UpstreamCheckpointIO().save_optimizer(optimizer, str(path), shard=True, size_per_shard=TINY)

    for number in range(12):
        upstream_saves(old)
        ended_at(number, lambda: upstream_saves(new))
        try:
            mixed += not is_one_of(path, old, new)
        except Exception:
            pass
        shutil.rmtree(path)
    assert mixed


@pytest.mark.parametrize("name", ["rename", "replace", "fsync", "mkdir", "open"])
def test_a_disk_that_fails(tmp_path, monkeypatch, name):
    old, new = trained(1), trained(2, lr=0.2)
    path, original, number = tmp_path / "checkpoint", getattr(os, name), 0
    while True:
        save(old, path)
        calls = 0

        def failing(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == number + 1 and not (name == "fsync" and os.path.isdir(f"/proc/self/fd/{arguments[0]}")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return original(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(os, name, failing)
            try:
                save(new, path)
                failed = False
            except OSError as error:
                assert error.errno == errno.ENOSPC
                failed = True
        held = is_one_of(path, old, new)
        assert held == ([0] if failed else [1])
        # What cannot be opened cannot be removed.
        assert name == "open" or not [each for each in os.listdir(path) if "saving" in each]
        shutil.rmtree(path)
        if calls <= number:
            break
        number += 1
    assert number


def test_a_full_disk_while_a_shard_is_written(tmp_path, monkeypatch):
    old, new, path, write = trained(1), trained(2), tmp_path / "checkpoint", torch.save
    save(old, path)
    before = sorted(os.listdir(path))

    def failing(content, file, *arguments, **options):
        write(content, file, *arguments, **options)
        if "00002" in str(file):
            os.truncate(file, 10)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch, "save", failing)
    with pytest.raises(OSError, match="No space left"):
        save(new, path)
    assert is_one_of(path, old) == [0] and sorted(os.listdir(path)) == before


def test_the_first_save_has_upstreams_names(tmp_path):
    optimizer = trained(1)
    save(optimizer, tmp_path / "ours")
    UpstreamCheckpointIO().save_optimizer(optimizer, str(tmp_path / "theirs"), shard=True, size_per_shard=TINY)
    assert sorted(os.listdir(tmp_path / "ours")) == sorted(os.listdir(tmp_path / "theirs"))
    assert (tmp_path / "ours" / INDEX).read_bytes() == (tmp_path / "theirs" / INDEX).read_bytes()


def test_names_alternate_and_do_not_grow(tmp_path):
    names = []
    for seed in range(4):
        save(trained(seed), tmp_path)
        names.append(sorted(os.listdir(tmp_path)))
    assert names[0] == names[2] != names[1] == names[3]
    assert not set(names[0]) & set(names[1]) - {INDEX}
    assert [name for name in names[1] if name != INDEX] == [
        "pytorch_optim-00004.bin",
        "pytorch_optim-00005.bin",
        "pytorch_optim-00006.bin",
        "pytorch_optim_group-00001.bin",
    ]


def test_names_of_stages_stay():
    names = ["o-stage-00001-shard-00001.bin", "o-stage-00002-shard-00001.bin", "o-stage-00002-00003-shard-00001.bin"]
    assert fresh_save._free_names(names, set(names)) == {
        "o-stage-00001-shard-00001.bin": "o-stage-00001-shard-00002.bin",
        "o-stage-00002-shard-00001.bin": "o-stage-00002-shard-00002.bin",
        "o-stage-00002-00003-shard-00001.bin": "o-stage-00002-00003-shard-00002.bin",
    }


def test_whatever_else_the_directory_holds_stays(tmp_path):
    one, other, later = trained(1), trained(2), trained(3, 1)
    save(one, tmp_path, prefix="a")
    save(other, tmp_path, prefix="a-00001")
    others = {
        "model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": {"w": "pytorch_optim-00002.bin"}}),
        "pytorch_optim-00002.bin": "a name that a model's index has",
        "pytorch_optim.bin": "an optimizer in one file",
        "pytorch_model-00001.bin": "of a model",
        "pytorch_optim-final.bin": "somebody's copy",
        "broken.index.json": "{",
    }
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    for optimizer in (trained(4, 4), trained(5, 4), later):
        save(optimizer, tmp_path)
    assert is_one_of(tmp_path, later) == [0]
    assert is_one_of(tmp_path / "pytorch_optim.bin.index.a.json", one) == [0]
    assert is_one_of(tmp_path / "pytorch_optim.bin.index.a-00001.json", other) == [0]
    assert {name: (tmp_path / name).read_text() for name in others} == others
    save(later, tmp_path, prefix="a")
    assert is_one_of(tmp_path / "pytorch_optim.bin.index.a.json", later) == [0]
    assert is_one_of(tmp_path / "pytorch_optim.bin.index.a-00001.json", other) == [0]


def test_the_groups_of_an_asynchronous_save_stay(tmp_path):
    save(trained(1), tmp_path)
    groups = (tmp_path / "pytorch_optim_group.bin").read_bytes()
    os.rename(tmp_path / INDEX, tmp_path / "optimizer.safetensors.index.json")
    save(trained(2, lr=0.2), tmp_path)
    assert (tmp_path / "pytorch_optim_group.bin").read_bytes() == groups
    assert loaded(tmp_path / "optimizer.safetensors.index.json")["param_groups"][0]["lr"] == 0.1
    assert loaded(tmp_path)["param_groups"][0]["lr"] == 0.2


def test_a_file_in_place_of_the_directory(tmp_path, caplog):
    path = tmp_path / "file"
    path.write_text("kept")
    save(trained(1), path)
    assert path.read_text() == "kept" and "should be a directory" in caplog.text


def test_links(tmp_path):
    old, new, kept = trained(1), trained(2), tmp_path / "kept"
    save(old, kept)
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in os.listdir(kept):
        (linked / name).symlink_to(kept / name)
    (tmp_path / "link").symlink_to(linked)
    save(new, tmp_path / "link")
    assert is_one_of(linked, old, new) == [1] and is_one_of(kept, old, new) == [0]


def test_what_interrupted_saves_left_is_removed_unless_in_use(tmp_path):
    save(trained(1), tmp_path)
    left, in_use, of_others = (
        tmp_path / f".{name}" for name in (f"{INDEX}.saving-1", f"{INDEX}.saving-2", "o.saving-1")
    )
    for directory in (left, in_use, of_others):
        directory.mkdir()
        (directory / "in-use").touch()
    descriptor = os.open(in_use / "in-use", os.O_RDWR)
    assert fresh_save._locked(descriptor)
    save(trained(2), tmp_path)
    os.close(descriptor)
    assert not left.exists() and in_use.exists() and of_others.exists()


def test_a_stale_manifest_goes(tmp_path):
    save(trained(1), tmp_path)
    (tmp_path / (INDEX + fresh_save.MANIFEST)).write_text("of the old files")
    save(trained(2), tmp_path)
    assert not (tmp_path / (INDEX + fresh_save.MANIFEST)).exists()


def test_a_subclass_that_saves_in_its_own_way_saves_where_it_was_told(tmp_path):
    told = []

    class Own(GeneralCheckpointIO):
        def save_sharded_optimizer(self, optimizer, checkpoint, *arguments, **options):
            told.append(checkpoint)

    Own().save_optimizer(trained(1), str(tmp_path), shard=True)
    GeneralCheckpointIO().save_optimizer(trained(1), str(tmp_path / "1"), shard=False)
    assert told == [str(tmp_path)] and os.path.isfile(tmp_path / "1")


class OnRanks:
    """Two ranks that write together."""

    def save_in(self, directories):
        def write(directory):
            os.makedirs(directory, exist_ok=True)
            torch.save({self.rank: {}}, os.path.join(directory, f"o-stage-0000{self.rank + 1}-shard-00001.bin"))
            torch.distributed.barrier()
            if self.rank == 0:
                index = {"metadata": {"param_groups": "g.bin"}, "weight_map": {}}
                torch.save([], os.path.join(directory, "g.bin"))
                for name in sorted(os.listdir(directory)):
                    if "stage" in name:
                        index["weight_map"][name[12]] = name
                with open(os.path.join(directory, "o.index.json"), "w") as file:
                    json.dump(index, file)

        path = os.path.join(self.directory, directories[self.rank])
        fresh_save.save_beside(path, "o.index.json", write, torch.distributed.group.WORLD)
        torch.distributed.barrier()
        return path

    def share_a_directory(self):
        for number in (1, 2):
            path = self.save_in(["shared", "shared"])
            names = [f"o-stage-0000{stage}-shard-0000{number}.bin" for stage in (1, 2)]
            found = sorted(name for name in os.listdir(path) if "stage" in name)
            assert found == names, os.listdir(path)
            torch.distributed.barrier()

    def have_directories_of_their_own(self):
        path = self.save_in(["first", "second"])
        assert f"o-stage-0000{self.rank + 1}-shard-00001.bin" in os.listdir(path)
        assert not [name for name in os.listdir(path) if "saving" in name]

    def the_first_cannot_write(self):
        path = os.path.join(self.directory, "shared")
        if self.rank == 0:
            with open(path, "w"):
                pass
        torch.distributed.barrier()
        with pytest.raises(OSError):
            fresh_save.save_beside(path, "o.index.json", os.makedirs, torch.distributed.group.WORLD)

    for method in (share_a_directory, have_directories_of_their_own, the_first_cannot_write):
        method.run_here = method


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool()
    yield pool
    pool.close()


@pytest.mark.parametrize("method", ["share_a_directory", "have_directories_of_their_own", "the_first_cannot_write"])
def test_two_ranks(tmp_path, pool, method):
    outcome = pool.get(2, overlay=False).run(Call(__name__, __file__, "OnRanks", method, {}, str(tmp_path)))
    assert outcome.status is Status.HELD, outcome.describe()
