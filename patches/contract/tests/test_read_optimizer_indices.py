import json

import pytest
from colossalai.checkpoint_io.optimizer_restore.errors import CheckpointLoadError, Problem, load_error
from colossalai.checkpoint_io.optimizer_restore.files.index_file import is_sharded, path_inside, read_index


def test_an_index_is_read(tmp_path):
    path = tmp_path / "pytorch_optim.bin.index.json"
    path.write_text(json.dumps({"metadata": {"param_groups": "groups.bin"}, "weight_map": {"0": "shard.bin"}}))
    problems = []
    assert is_sharded(tmp_path) == (True, str(path))
    assert read_index(str(path), problems) == ({"0": "shard.bin"}, {"param_groups": "groups.bin"})
    assert not problems


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metadata": {}, "weight_map": {"0": 1}}'])
def test_what_is_wrong_with_an_index_is_collected(tmp_path, text):
    path = tmp_path / "pytorch_optim.bin.index.json"
    path.write_text(text)
    problems = []
    read_index(str(path), problems)
    assert problems and all(str(path) in str(problem) for problem in problems)


@pytest.mark.parametrize("name", ["../shard.bin", "/shard.bin", "a/../../shard.bin"])
def test_files_outside_of_the_directory_are_refused(tmp_path, name):
    problems = []
    assert path_inside(str(tmp_path), name, "the index", problems) == ""
    assert len(problems) == 1


@pytest.mark.parametrize(
    "damaged, missing, kinds",
    [(False, False, (ValueError,)), (True, False, (RuntimeError,)), (True, True, (FileNotFoundError, ValueError))],
)
def test_one_error_lists_all_problems(damaged, missing, kinds):
    problems = [Problem(f"problem {number}", damaged, "file.bin", number, missing=missing) for number in range(3)]
    error = load_error(problems)
    assert isinstance(error, CheckpointLoadError) and all(isinstance(error, kind) for kind in kinds)
    assert all(f"problem {number}" in str(error) for number in range(3))
