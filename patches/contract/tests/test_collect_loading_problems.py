import pickle

import pytest
from colossalai.checkpoint_io.optimizer_restore.errors import CheckpointLoadError, Problem, load_error, shown

DAMAGED = dict(damaged=True, file="shard.bin")


@pytest.mark.parametrize(
    "problems, kinds",
    [
        ([Problem("has another shape")], (ValueError,)),
        ([Problem("has another shape"), Problem("is cut short", **DAMAGED)], (RuntimeError,)),
        ([Problem("does not exist", missing=True, **DAMAGED)], (FileNotFoundError, ValueError, RuntimeError)),
    ],
    ids=["mismatch", "damage", "missing"],
)
def test_what_caught_it_before_still_does(problems, kinds):
    error = load_error(problems)
    assert isinstance(error, CheckpointLoadError)
    assert all(isinstance(error, kind) for kind in kinds)


def test_every_problem_is_said_with_all_that_is_known():
    where = Problem("has another shape", False, "shard.bin", 3, "exp_avg", (2, 3), (3, 2), "Load another one")
    error = pickle.loads(pickle.dumps(load_error([where, Problem("another")])))
    for part in (
        "2 problems",
        "shard.bin",
        "parameter id 3",
        "'exp_avg'",
        "(2, 3)",
        "(3, 2)",
        "Load another one",
        "another",
    ):
        assert part in str(error)


@pytest.mark.parametrize(
    "value", ["\x1b[31m", "\ud800", "x" * 10**6, 10**5000], ids=["escape", "half", "long", "number"]
)
def test_texts_from_files_can_be_printed(value):
    text = str(shown(value))
    assert text.isprintable() and len(text) < 300
    text.encode()
