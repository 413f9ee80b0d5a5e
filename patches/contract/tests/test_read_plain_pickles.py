import os
import pickle

import pytest
from colossalai.checkpoint_io.optimizer_restore.files.plain_pickle import PickleError, PlainUnpickler

PLAIN = [
    None,
    [True, False, 0, 1, -1, 255, 2**31, -(2**70), 0.5, float("inf")],
    {"text": "ß", 3: (), (1, 2): (1, 2, 3, 4)},
    ["x" * 300, list(range(2000))],
]
# Older protocols make these by calling what they name.
BY_OPCODE = [set(), {1, 2}, frozenset({"a"}), b"\x00\xff"]


def refuse(module, name):
    raise PickleError(f"{module}.{name} may not be used")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("content", PLAIN)
def test_plain_data_is_read(content, protocol):
    assert PlainUnpickler(pickle.dumps(content, protocol), refuse).load() == content


def test_sets_and_bytes_are_read():
    assert PlainUnpickler(pickle.dumps(BY_OPCODE, 4), refuse).load() == BY_OPCODE


def test_shared_lists_stay_so():
    shared = [1]
    first, second = PlainUnpickler(pickle.dumps([shared, shared]), refuse).load()
    assert first is second


class RunsCode:
    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_no_code_runs(tmp_path):
    content = RunsCode()
    content.path = str(tmp_path / "made")
    with pytest.raises(PickleError):
        PlainUnpickler(pickle.dumps(content), refuse).load()
    assert not os.path.exists(content.path)


@pytest.mark.parametrize("length", range(0, 40, 7))
def test_a_pickle_that_is_cut_short_is_refused(length):
    with pytest.raises(PickleError):
        PlainUnpickler(pickle.dumps(PLAIN)[:length], refuse).load()


def test_data_that_grows_when_it_is_walked_through_is_refused():
    content = [1]
    for _ in range(40):
        content = [content, content]
    with pytest.raises(PickleError):
        PlainUnpickler(pickle.dumps(content), refuse).load()
