"""Checkpoints as a whole: whatever is wrong with the index or the layout is said, with the name of the file."""

import json
import os

import pytest
import torch
from guarded import MEGABYTE, guarded
from safetensors.torch import save_file

from colossalai_fork.checkpoint_io.optimizer_restore.files.reading import UnreadableFileError, read
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import (
    in_memory,
    is_sharded,
    normalised_id,
    open_groups,
    open_sharded,
    open_unsharded,
)


def write(directory, index):
    path = directory / "pytorch_optim.bin.index.json"
    path.write_bytes(
        index if isinstance(index, bytes) else (index if isinstance(index, str) else json.dumps(index)).encode()
    )
    torch.save([{"params": [0]}], directory / "groups.bin")
    return str(path)


def index_of(weight_map, **metadata):
    return {"metadata": {"param_groups": "groups.bin", **metadata}, "weight_map": weight_map}


INDICES = {
    "deep": "[" * 100_000,
    "deep and closed": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "null": index_of({}, param_groups="gro\0ups.bin"),
    "surrogate": index_of({}, param_groups="gro\ud800ups.bin"),
    "long name": index_of({}, param_groups="a" * 100_000),
    "long number": '{"weight_map": {"0": ' + "9" * 10_000 + "}}",
    "long number in metadata": json.dumps(index_of({}))[:-1] + ', "more": ' + "9" * 10_000 + "}",
    "not unicode": b"\xff\xfe{}",
    "list": [1],
    "number": 3,
    "no metadata": {"weight_map": {}},
    "no groups": {"weight_map": {}, "metadata": {}},
    "groups of another kind": index_of({}, param_groups=[1]),
    "shards of another kind": index_of({"0": [1]}),
    "id in two ways": index_of({"1": "a.bin", "1.0": "a.bin"}, param_groups="missing.bin"),
    "upwards": index_of({}, param_groups="../groups.bin"),
    "absolute": index_of({}, param_groups="/etc/passwd"),
    "itself": index_of({}, param_groups="."),
}


@pytest.mark.parametrize("kind", INDICES)
def test_an_index_that_cannot_be_followed_is_a_problem_of_a_named_file(tmp_path, kind):
    path = write(tmp_path, INDICES[kind])
    outcome = guarded(problems_of, path, memory=100 * MEGABYTE)
    assert outcome.kind == "returned", outcome
    ((damaged, file, message),) = outcome.value
    assert damaged and file.startswith(str(tmp_path))
    assert len(message) < 1000 + len(str(tmp_path)) and message.isprintable()


def problems_of(path):
    return [(problem.damaged, problem.file, str(problem)) for problem in open_sharded(path).problems]


@pytest.mark.parametrize(
    "shard", ["a" * 100_000, "a\0b.bin", "../a.bin", "/a.bin", "a.*.bin", "\x1b[31m.bin" + "x" * 5000]
)
def test_a_shard_that_may_not_be_opened_is_a_problem_once(tmp_path, shard):
    path = write(tmp_path, index_of({str(number): shard for number in range(50)}))
    (problem,) = open_sharded(path).problems
    assert len(str(problem)) < 1000 + len(str(tmp_path)) and str(problem).isprintable()


def test_a_directory_without_an_index_and_with_two(tmp_path):
    (problem,) = open_sharded(str(tmp_path)).problems
    assert problem.missing and "no index file" in str(problem)
    for number in range(100):
        (tmp_path / f"{number}.index.json").write_text("{}")
    (problem,) = open_sharded(str(tmp_path)).problems
    assert not problem.missing and "100 index files" in str(problem) and len(str(problem)) < 500


def test_what_is_missing_is_marked_so(tmp_path):
    (problem,) = open_sharded(str(tmp_path / "x.index.json")).problems
    assert problem.missing
    path = write(tmp_path, index_of({"0": "shard.bin"}))
    (shard,) = open_sharded(path).shards
    with pytest.raises(UnreadableFileError) as info:
        shard.states()
    assert info.value.missing
    (tmp_path / "groups.bin").unlink()
    (problem,) = open_sharded(path).problems
    assert problem.missing and problem.file == str(tmp_path / "groups.bin")
    (problem,) = open_unsharded(str(tmp_path / "file.bin")).problems
    assert problem.missing


@pytest.mark.parametrize(
    "path, sharded",
    [
        ("a" * 5000, False),
        ("a\0b", False),
        ("\udc80", False),
        ("x.index.json", True),
        ("x.bin.index.safetensors.json", True),
        ("x.json", False),
        ("index.json", False),
        ("", False),
    ],
)
def test_whether_it_is_sharded_is_decided_without_an_error(path, sharded):
    assert is_sharded(path) == (sharded, path)


def test_a_directory_that_may_not_be_looked_into_is_a_problem(tmp_path, monkeypatch):
    def stale(*arguments, **options):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "listdir", stale)
    assert is_sharded(str(tmp_path)) == (True, str(tmp_path))
    (problem,) = open_sharded(str(tmp_path)).problems
    assert "Stale file handle" in str(problem)
    monkeypatch.setattr(os, "stat", stale)
    (problem,) = open_sharded(str(tmp_path / "x.index.json")).problems
    assert "Stale file handle" in str(problem)


@pytest.mark.parametrize("name_of_state", ["\u00b2", "9" * 6000, "01", "-0", "--1", "1.0", " 1", "1\n", ""])
def test_a_name_that_is_no_id_stays_a_name(name_of_state):
    assert normalised_id(name_of_state) == name_of_state


@pytest.mark.parametrize("number", [0, 7, 10, 2**63, 10**30, -3, -(2**63)])
def test_a_number_in_a_name_is_an_id(number):
    assert normalised_id(str(number)) == number


@pytest.mark.parametrize("number", [2**63, -3, 139_637_976_727_232])
def test_ids_of_any_size(tmp_path, number):
    torch.save({number: {"a": torch.ones(2)}}, tmp_path / "shard.bin")
    path = write(tmp_path, index_of({str(number): "shard.bin"}))
    saved = open_sharded(path)
    (shard,) = saved.shards_with({number})
    assert list(shard.states()) == [number] and saved.index == {number: shard.path}
    save_file({f"state.{number}.a": torch.ones(2)}, tmp_path / "shard.safetensors")
    path = write(tmp_path, index_of({str(number): "shard.safetensors"}))
    assert list(open_sharded(path).shards[0].states()) == [number]


def test_an_id_that_a_file_holds_twice_is_refused(tmp_path):
    torch.save({1: {}, "1": {}}, tmp_path / "shard.bin")
    (shard,) = open_sharded(write(tmp_path, index_of({"1": "shard.bin"}))).shards
    with pytest.raises(UnreadableFileError, match="twice"):
        shard.states()


# ======================================
# groups and whole files
# ======================================

GROUPS = [
    {"a": 1},
    [1],
    [{1: 2, "params": []}],
    [{}],
    [{"params": 1}],
    [{"params": ["0"]}],
    [{"params": [True]}],
    [{"params": ["x" * 100_000] * 10}],
    [{"params": list(map(str, range(10**5)))}],
    None,
]


@pytest.mark.parametrize("groups", GROUPS, ids=lambda groups: repr(groups)[:30])
def test_groups_that_are_none_are_a_problem_each(tmp_path, groups):
    torch.save(groups, tmp_path / "groups.bin")
    saved = open_groups(str(tmp_path / "groups.bin"))
    (problem,) = saved.problems
    assert saved.groups is None and len(str(problem)) < 1000 + len(str(tmp_path))


def test_tensors_in_groups_are_read(tmp_path):
    torch.save([{"params": [0], "lr": torch.tensor(0.5), "list": [torch.ones(2)]}], tmp_path / "groups.bin")
    (group,) = open_groups(str(tmp_path / "groups.bin")).groups
    assert torch.equal(group["lr"], torch.tensor(0.5)) and torch.equal(group["list"][0], torch.ones(2))


@pytest.mark.parametrize("format_of_file", ["zip", "legacy"])
def test_what_a_file_holds_beside_state_and_groups(tmp_path, format_of_file):
    content = {"state": {0: {"a": torch.ones(2)}}, "param_groups": [{"params": [0]}], "total": 7, "more": torch.ones(1)}
    path = tmp_path / "file.bin"
    torch.save(content, path, _use_new_zipfile_serialization=format_of_file == "zip")
    saved = open_unsharded(path)
    assert saved.problems == [] and saved.content is None
    assert saved.extra == {"total": 7, "more": torch.ones(1)}
    (shard,) = saved.shards
    assert torch.equal(read([shard.states()[0]["a"]])[0], torch.ones(2))


def test_a_file_of_another_layout_is_kept_whole(tmp_path):
    torch.save({"inner": 1}, tmp_path / "file.bin")
    saved = open_unsharded(tmp_path / "file.bin")
    assert saved.groups is None and saved.content == {"inner": 1}
    assert ["state dict" in str(problem) for problem in saved.problems] == [True]


def test_a_state_dict_in_memory_stays_as_it_is():
    tensor = torch.ones(2)
    saved = in_memory({"state": {0: {"a": tensor}}, "param_groups": [{"params": [0]}], "b": tensor})
    assert saved.problems == [] and saved.shards[0].states()[0]["a"] is tensor and saved.extra["b"] is tensor


# ======================================
# files that change
# ======================================


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
    os.truncate(path, 100)
    with pytest.raises(UnreadableFileError, match="written to since"):
        shard.states()


@pytest.mark.parametrize("sharded", [True, False])
def test_a_file_that_is_replaced_before_it_is_loaded_is_what_it_was(tmp_path, sharded):
    shard, path = opened_shard(tmp_path, sharded)
    (tmp_path / "new").write_bytes(b"something else")
    os.replace(tmp_path / "new", path)
    assert torch.equal(read([shard.states()[0]["a"]])[0], torch.zeros(5000))
    path.unlink()
    assert torch.equal(read([shard.states()[0]["a"]])[0], torch.zeros(5000))


def test_more_shards_than_files_may_be_open(tmp_path):
    names = [f"{number}.bin" for number in range(300)]
    for number, shard in enumerate(names):
        torch.save({number: {"a": torch.full((3,), float(number))}}, tmp_path / shard)
    saved = open_sharded(write(tmp_path, index_of({str(number): shard for number, shard in enumerate(names)})))
    before = len(os.listdir("/proc/self/fd"))
    for shard in saved.shards:
        shard.states()
    assert len(os.listdir("/proc/self/fd")) - before < 150
    for number, shard in enumerate(saved.shards):
        assert read([shard.states()[number]["a"]])[0].tolist() == [number] * 3
    # What has been closed meanwhile is recognised when it is opened again.
    torch.save({299: {"a": torch.zeros(3)}}, tmp_path / "new")
    os.replace(tmp_path / "new", tmp_path / names[299])
    (tensor,) = saved.shards[299].states()[299].values()
    tensor.source.close()
    with pytest.raises(UnreadableFileError, match="replaced"):
        read([tensor])
    saved.close()
    assert len(os.listdir("/proc/self/fd")) == before
