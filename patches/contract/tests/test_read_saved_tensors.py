import torch
from colossalai.checkpoint_io.optimizer_restore.files.reading import read, read_ahead
from colossalai.checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor, contiguous_stride
from colossalai.checkpoint_io.optimizer_restore.files.sources import FileSource


def save(path, tensor):
    path.write_bytes(b"head" + tensor.numpy().tobytes())
    return SavedTensor(FileSource(str(path)), 4, tensor.dtype, tuple(tensor.shape), contiguous_stride(tensor.shape))


def test_parts_are_read_into_memory_of_their_own(tmp_path):
    tensor = torch.arange(600.0).view(20, 30)
    saved = save(tmp_path / "file", tensor)
    views = [saved, saved.narrow(1, 7, 5), saved.flat().narrow(0, 100, 9), saved.narrow(0, 3, 0)]

    found = read(views)

    expected = [tensor, tensor.narrow(1, 7, 5), tensor.flatten()[100:109], tensor[:0]]
    for ours, theirs in zip(found, expected):
        assert torch.equal(ours, theirs)
        assert ours.untyped_storage().nbytes() == theirs.numel() * 4


def test_reading_ahead_keeps_the_order(tmp_path):
    tensors = [torch.full((1000,), float(index)) for index in range(20)]
    saved = [save(tmp_path / str(index), tensor) for index, tensor in enumerate(tensors)]
    entries = ((index, [each, each.narrow(0, 0, 2)]) for index, each in enumerate(saved))

    for index, (key, (whole, part)) in enumerate(read_ahead(entries, threads=3, bytes_ahead=10_000)):
        assert key == index
        assert torch.equal(whole, tensors[index]) and torch.equal(part, tensors[index][:2])
    assert index == 19
