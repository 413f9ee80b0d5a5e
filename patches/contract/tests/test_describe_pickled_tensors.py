import io
import pickle
import zipfile

import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.files.pickled_tensors import TensorUnpickler
from colossalai.checkpoint_io.optimizer_restore.files.plain_pickle import PickleError
from colossalai.checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor


def pickle_in(content):
    file = io.BytesIO()
    torch.save(content, file)
    with zipfile.ZipFile(file) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        return archive.read(name)


def load(data, size=10_000):
    asked = []

    def locate(key, kind, numel):
        asked.append((key, numel))
        return "the file", 100

    content, end = TensorUnpickler(locate, size).load(data)
    assert end == len(data)
    return content, asked


def test_tensors_are_described():
    whole = torch.arange(12.0).view(3, 4)
    (found, part), asked = load(pickle_in([whole, whole[1:, 2:]]))
    assert type(found) is type(part) is SavedTensor
    assert (found.shape, found.stride, found.dtype, found.offset) == ((3, 4), (4, 1), torch.float32, 100)
    assert (part.shape, part.stride, part.offset) == ((2, 2), (4, 1), 100 + 6 * 4)
    assert asked == [("0", 12)]


def test_plain_data_stays():
    content = {"step": 3, "betas": (0.9, 0.99)}
    assert load(pickle_in(content)) == (content, [])


def test_a_tensor_larger_than_its_storage_is_refused():
    data = pickle_in(torch.zeros(3))
    assert data.count(b"K\x03\x85") == 1
    with pytest.raises(PickleError):
        load(data.replace(b"K\x03\x85", b"K\x77\x85"))


def test_code_is_refused():
    with pytest.raises(PickleError):
        load(pickle.dumps(print, 2))
