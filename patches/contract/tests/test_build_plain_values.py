import collections
import datetime
import fractions
import pathlib
import pickle

import numpy as np
import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.files.constructors import find_plain
from colossalai.checkpoint_io.optimizer_restore.files.plain_pickle import PickleError, PlainUnpickler


def find(module, name):
    found = find_plain(module, name)
    if found is None:
        raise PickleError(f"{module}.{name} is none of plain data")
    return found


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "value",
    [
        collections.OrderedDict(a=1),
        collections.Counter("aab"),
        collections.deque([1, 2], maxlen=3),
        pathlib.PurePosixPath("a/b"),
        datetime.timedelta(seconds=3),
        fractions.Fraction(1, 3),
        torch.float16,
        torch.Size([1, 2]),
        np.float64(0.1),
        np.int32(7),
    ],
    ids=repr,
)
def test_values_are_built(value, protocol):
    found = PlainUnpickler(pickle.dumps(value, protocol), find).load()
    assert found == value and type(found) is type(value)


def test_arrays_are_built():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = PlainUnpickler(pickle.dumps(array, 2), find).load()
    assert found.dtype == array.dtype and np.array_equal(found, array)


def test_arrays_of_objects_are_not():
    with pytest.raises(PickleError):
        PlainUnpickler(pickle.dumps(np.array([print], dtype=object), 2), find).load()


@pytest.mark.parametrize("value", [print, pytest, torch.nn.Linear])
def test_code_is_none_of_plain_data(value):
    assert find_plain(getattr(value, "__module__", "builtins"), value.__name__) is None
