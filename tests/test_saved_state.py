"""Opening a sharded checkpoint: whatever is wrong with its index is said, with the name of the file."""

import json

import pytest
import torch

from colossalai_fork.checkpoint_io.saved_state import normalised_id, open_sharded


def write(directory, index):
    path = directory / "pytorch_optim.bin.index.json"
    path.write_text(index if isinstance(index, str) else json.dumps(index))
    torch.save([{"params": [0]}], directory / "groups.bin")
    return str(path)


@pytest.mark.parametrize(
    "index",
    [
        "[" * 100_000,
        {"metadata": {"param_groups": "gro\0ups.bin"}, "weight_map": {}},
        {"metadata": {"param_groups": "gro\ud800ups.bin"}, "weight_map": {}},
    ],
    ids=["deep", "null", "surrogate"],
)
def test_an_index_that_cannot_be_followed_is_a_problem_of_a_named_file(tmp_path, index):
    saved = open_sharded(write(tmp_path, index))
    assert [problem.damaged for problem in saved.problems] == [True]
    assert saved.problems[0].file.startswith(str(tmp_path))


@pytest.mark.parametrize("name", ["\u00b2", "9" * 6000, "01", "-1", "1.0", " 1", ""])
def test_a_name_that_is_no_id_stays_a_name(name):
    assert normalised_id(name) == name


@pytest.mark.parametrize("number", [0, 7, 10, 2**63, 10**30])
def test_a_number_in_a_name_is_an_id(number):
    assert normalised_id(str(number)) == number
