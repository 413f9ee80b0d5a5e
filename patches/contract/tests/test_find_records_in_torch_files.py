import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.files.pickled_tensors import TensorUnpickler
from colossalai.checkpoint_io.optimizer_restore.files.sources import FileSource, UnreadableFileError
from colossalai.checkpoint_io.optimizer_restore.files.tensor_shortcut import TensorShortcut
from colossalai.checkpoint_io.optimizer_restore.files.zip_directory import read_directory


@pytest.fixture
def file(tmp_path):
    torch.save({"a": torch.arange(5), "b": torch.ones(3)}, tmp_path / "file")
    return tmp_path / "file"


def test_records_lie_where_the_directory_says(file):
    records = read_directory(FileSource(str(file)))
    assert {b"data.pkl", b"version", b"data/0", b"data/1"} <= set(records)
    source, start, size, _ = records[b"data/0"]
    assert source.read_bytes(start, size) == torch.arange(5).numpy().tobytes()


@pytest.mark.parametrize("kept", [0, 10, 0.5, -1])
def test_an_archive_that_is_cut_short_is_refused(file, kept):
    data = file.read_bytes()
    file.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    with pytest.raises(UnreadableFileError):
        read_directory(FileSource(str(file)))


def test_a_program_is_refused(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(tmp_path / "program"))
    with pytest.raises(UnreadableFileError):
        read_directory(FileSource(str(tmp_path / "program")))


def test_the_shortcut_has_the_effect_of_the_opcodes(file):
    records = read_directory(FileSource(str(file)))
    source, start, size, _ = records[b"data.pkl"]
    data = source.read_bytes(start, size)
    found = []
    for with_shortcut in (False, True):
        tensors = TensorUnpickler(lambda key, kind, numel: records[f"data/{key}".encode()][:2], 10_000)
        content, end = tensors.load(data, shortcut=TensorShortcut(tensors, records) if with_shortcut else None)
        found.append([(key, each.shape, each.stride, each.dtype, each.offset) for key, each in content.items()])
        assert end == size
    assert found[0] == found[1] and [entry[0] for entry in found[0]] == ["a", "b"]
