import json

import pytest
from colossalai.checkpoint_io.optimizer_restore.files.manifest import altered_sizes, read_manifest


@pytest.fixture
def index(tmp_path):
    for name, content in (("index.json", b"{}"), ("shard.bin", b"12345")):
        (tmp_path / name).write_bytes(content)
    return tmp_path / "index.json"


def write(index, **sizes):
    files = {name.replace("_", "."): {"bytes": size, "sha256": "0" * 64} for name, size in sizes.items()}
    content = {"format": "optimizer checkpoint manifest", "version": 1, "files": files}
    index.with_name("index.json.manifest").write_text(json.dumps(content))


def problems_of(index):
    problems = []
    manifest = read_manifest(str(index), problems)
    files = [str(index), str(index.with_name("shard.bin"))]
    return [str(problem) for problem in problems + (altered_sizes(manifest, files) if manifest else [])]


def test_no_manifest_is_no_problem(index):
    assert problems_of(index) == []


def test_right_sizes(index):
    write(index, index_json=2, shard_bin=5)
    assert problems_of(index) == []


@pytest.mark.parametrize("sizes", [dict(index_json=2, shard_bin=6), dict(index_json=2)], ids=["another", "none"])
def test_a_file_that_differs_is_named(index, sizes):
    write(index, **sizes)
    (problem,) = problems_of(index)
    assert "shard.bin" in problem


def test_a_file_too_many_is_named(index):
    write(index, index_json=2, shard_bin=5, other_bin=1)
    (problem,) = problems_of(index)
    assert "other.bin" in problem


@pytest.mark.parametrize("text", ["", "[" * 100000, "{}"], ids=["empty", "nested", "another format"])
def test_a_damaged_manifest_is_a_problem(index, text):
    index.with_name("index.json.manifest").write_text(text)
    (problem,) = problems_of(index)
    assert "index.json.manifest" in problem
