import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor, contiguous_stride
from colossalai.checkpoint_io.optimizer_restore.files.sources import FileSource, UnreadableFileError


def test_a_descriptor_is_cut_as_a_tensor_is():
    tensor = torch.arange(24).view(4, 6)
    saved = SavedTensor(None, 8, torch.int64, (4, 6), contiguous_stride((4, 6)))
    for ours, theirs in (
        (saved.narrow(1, 2, 3), tensor.narrow(1, 2, 3)),
        (saved.narrow(0, 1, 2).flat(), tensor.narrow(0, 1, 2).flatten()),
        (saved.flat().narrow(0, 5, 4), tensor.flatten().narrow(0, 5, 4)),
        (saved.reshape((8, 3)), tensor.reshape(8, 3)),
    ):
        assert (ours.shape, ours.stride) == (tuple(theirs.shape), theirs.stride())
        assert ours.offset == 8 + 8 * theirs.storage_offset()


def test_ranges_of_a_file_are_read(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(100)))
    source = FileSource(str(tmp_path / "file"))
    assert source.size == 100 and source.read_bytes(10, 5) == bytes(range(10, 15))
    with pytest.raises(UnreadableFileError):
        source.read_bytes(96, 5)
    source.close()


def test_a_file_that_was_replaced_is_noticed(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    source = FileSource(str(tmp_path / "file"))
    (tmp_path / "file").write_bytes(b"newer")
    with pytest.raises(UnreadableFileError):
        source.check_unchanged()
    source.close()


def test_only_regular_files_are_opened(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UnreadableFileError):
            FileSource(str(path))
