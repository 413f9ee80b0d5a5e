"""Opening one checkpoint file: every format, without reading it, without running it."""

import io
import json
import os
import pickle
import re
import zipfile

import numpy
import pytest
import torch
from safetensors.torch import save_file

from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_file import (
    UnreadableFileError,
    read_safetensors_file,
    read_torch_file,
)
from colossalai_fork.checkpoint_io.optimizer_restore.files.strict_pickle import loads

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


class RunsCode:
    """Pickles into a call of os.mkdir, which leaves a trace if anyone opens the pickle without care."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_layout_of_a_tensor(tmp_path, dtype, zip_format):
    whole = (torch.arange(60) % 7).to(dtype).view(5, 4, 3)
    content = {
        0: {"whole": whole, "transposed": whole.transpose(0, 2), "strided": whole[::2, 1:, :]},
        1: {"scalar": whole[1, 1, 1].clone(), "nothing": whole[:0], "view": whole.view(-1)[7:11], "none": None},
        2: {"expanded": whole[0, 0, :1].expand(4), "list": [whole[0], 3], "text": "text", "pair": (1, 2.5)},
    }
    path = tmp_path / "file.bin"
    torch.save(content, path, _use_new_zipfile_serialization=zip_format)
    found, mapped = read_torch_file(str(path))
    assert equal(content, found)
    assert mapped is zip_format


def test_numpy_numbers_are_numbers(tmp_path):
    content = [{"lr": numpy.linspace(0, 1, 3)[1], "steps": numpy.int32(3), "params": [0]}]
    path = tmp_path / "groups.bin"
    torch.save(content, path)
    found, _ = read_torch_file(str(path))
    assert found[0]["lr"] == 0.5 and found[0]["steps"] == 3


def test_tensors_of_a_zip_file_alias_it_and_take_no_memory(tmp_path):
    path = tmp_path / "file.bin"
    torch.save({0: {"a": torch.zeros(1000)}}, path)
    found, _ = read_torch_file(str(path))
    assert found[0]["a"].untyped_storage().nbytes() == path.stat().st_size


def test_a_parameter_in_a_file_is_left_to_torch(tmp_path):
    path = tmp_path / "file.bin"
    torch.save({0: {"a": torch.nn.Parameter(torch.ones(3))}}, path)
    found, mapped = read_torch_file(str(path))
    assert mapped and torch.equal(found[0]["a"], torch.ones(3))


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
def test_a_torch_file_that_runs_code_is_refused(tmp_path, zip_format):
    path = tmp_path / "file.bin"
    torch.save({0: RunsCode(tmp_path / "trace")}, path, _use_new_zipfile_serialization=zip_format)
    with pytest.raises(UnreadableFileError, match="run code"):
        read_torch_file(str(path))
    assert not (tmp_path / "trace").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "trace").exists(), "the attack itself does not work, so this test proves nothing"


def test_a_pickle_that_is_no_torch_file_is_refused(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(pickle.dumps(RunsCode(tmp_path / "trace")))
    with pytest.raises(UnreadableFileError):
        read_torch_file(str(path))
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 20, b"PK\x03\x04 no archive"])
def test_what_is_no_torch_file_is_refused(tmp_path, content):
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError):
        read_torch_file(str(path))


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
def test_a_truncated_torch_file_is_refused(tmp_path, keep, zip_format):
    path = tmp_path / "file.bin"
    torch.save({0: {"a": torch.arange(500.0)}}, path, _use_new_zipfile_serialization=zip_format)
    with open(path, "r+b") as file:
        file.truncate(int(path.stat().st_size * keep))
    with pytest.raises(UnreadableFileError):
        read_torch_file(str(path))


def rewritten(path, change, compression=zipfile.ZIP_STORED):
    """Rewrite the records of a torch zip file."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    change(records)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in records.items():
            archive.writestr(name, data)


def test_tensor_data_that_is_missing_or_short_is_refused(tmp_path):
    path = tmp_path / "file.bin"
    for change in (
        lambda records: records.pop("file/data/0"),
        lambda records: records.update({"file/data/0": records["file/data/0"][:-4]}),
    ):
        torch.save({0: {"a": torch.arange(500.0)}}, path)
        rewritten(path, change)
        with pytest.raises(UnreadableFileError):
            read_torch_file(str(path))


def test_compressed_tensor_data_is_not_mistaken_for_tensors(tmp_path):
    path = tmp_path / "file.bin"
    # Bytes that compression makes longer, so that all lengths seem to be right.
    table = torch.randint(0, 256, (5000,), dtype=torch.uint8)
    torch.save({0: {"table": table, "zeros": torch.zeros(5000)}}, path)
    rewritten(path, lambda records: None, zipfile.ZIP_DEFLATED)
    found, mapped = read_torch_file(str(path))
    assert torch.equal(found[0]["table"], table) and torch.equal(found[0]["zeros"], torch.zeros(5000))
    assert not mapped


def test_a_file_without_checksums_is_read(tmp_path):
    path = tmp_path / "file.bin"
    torch.save({0: {"a": torch.arange(5.0)}}, path)
    data = bytearray(path.read_bytes())
    # Where the checksum is in the headers of the archive's directory, as torch.serialization.set_crc32_options leaves it.
    for match in re.finditer(b"PK\x01\x02", bytes(data)):
        data[match.start() + 16 : match.start() + 20] = bytes(4)
    path.write_bytes(data)
    found, _ = read_torch_file(str(path))
    assert torch.equal(found[0]["a"], torch.arange(5.0))


def test_a_path_that_is_no_text_is_read(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff\xfe.bin")
    with open(path, "wb") as file:
        torch.save({0: {"a": torch.arange(5.0)}}, file)
    found, _ = read_torch_file(os.fsdecode(path))
    assert torch.equal(found[0]["a"], torch.arange(5.0))


def test_a_file_system_that_maps_nothing_is_read(tmp_path, monkeypatch):
    def no_device(*arguments, **options):
        raise RuntimeError("unable to mmap 1 bytes from file: No such device (19)")

    path = tmp_path / "file.bin"
    torch.save({0: {"a": torch.arange(5.0)}}, path)
    monkeypatch.setattr(torch.UntypedStorage, "from_file", no_device)
    found, mapped = read_torch_file(str(path))
    assert torch.equal(found[0]["a"], torch.arange(5.0)) and not mapped


def test_a_pipe_is_not_opened(tmp_path):
    path = tmp_path / "file.bin"
    os.mkfifo(path)
    with pytest.raises(UnreadableFileError, match="regular file"):
        read_torch_file(str(path))


def write_safetensors(path, tensors, pickled=()):
    entries = dict(tensors)
    for name, data in dict(pickled).items():
        entries[name] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    save_file(entries, str(path), {"format": "pt", "non_tensor_keys": json.dumps(list(dict(pickled)))})


def test_safetensors_values_are_tensors_or_plain_data(tmp_path):
    path = tmp_path / "file.safetensors"
    groups = [{"lr": torch.tensor(0.5), "betas": (0.9, 0.99), "params": [0]}]
    pickled = {"state.0.step": pickle.dumps(7), "param_groups": pickle.dumps(groups)}
    write_safetensors(path, {"state.0.exp_avg": torch.arange(3.0)}, pickled)
    found = read_safetensors_file(str(path))
    assert found["state.0.step"] == 7
    assert torch.equal(found["state.0.exp_avg"], torch.arange(3.0))
    assert torch.equal(found["param_groups"][0]["lr"], torch.tensor(0.5))
    assert found["param_groups"][0]["betas"] == (0.9, 0.99)


def test_a_pickled_value_in_safetensors_that_runs_code_is_refused(tmp_path):
    path = tmp_path / "file.safetensors"
    write_safetensors(path, {}, {"state.0.step": pickle.dumps(RunsCode(tmp_path / "trace"))})
    with pytest.raises(UnreadableFileError, match="not plain data"):
        read_safetensors_file(str(path))
    assert not (tmp_path / "trace").exists()


def test_a_tensor_inside_a_pickled_value_cannot_smuggle_code(tmp_path):
    inner = io.BytesIO()
    torch.save(RunsCode(tmp_path / "trace"), inner)

    class Smuggles:
        def __reduce__(self):
            return torch.storage._load_from_bytes, (inner.getvalue(),)

    with pytest.raises(Exception):
        loads(pickle.dumps(Smuggles()))
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    "attack",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"ctorch\nload\n(S'x'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"c__builtin__\ngetattr\n(S'x'\nS'y'\ntR.",
    ],
)
def test_no_global_but_constructors_of_plain_data(attack):
    with pytest.raises(pickle.UnpicklingError, match="not plain data"):
        loads(attack)


CHANGED = b"N}X\x0c\x00\x00\x00__defaults__X\x04\x00\x00\x00evil\x85s\x86b."


@pytest.mark.parametrize("name", ["torch._utils _rebuild_tensor_v2", "numpy.core.multiarray scalar"])
def test_a_pickle_cannot_change_the_functions_that_it_may_call(name):
    module, function = name.encode().split()
    attack = b"\x80\x02c" + module + b"\n" + function + b"\n" + CHANGED
    before = torch._utils._rebuild_tensor_v2.__defaults__
    try:
        with pytest.raises(pickle.UnpicklingError, match="changes a function"):
            loads(attack)
        assert torch._utils._rebuild_tensor_v2.__defaults__ == before
    finally:
        torch._utils._rebuild_tensor_v2.__defaults__ = before


def test_a_torch_file_cannot_change_how_later_files_are_read(tmp_path):
    path, later = tmp_path / "file.bin", tmp_path / "later.bin"
    for each in (path, later):
        torch.save({0: {"a": torch.arange(5.0)}}, each)
    attack = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + CHANGED
    rewritten(path, lambda records: records.update({"file/data.pkl": attack}))
    with pytest.raises(UnreadableFileError):
        read_torch_file(str(path))
    found, _ = read_torch_file(str(later))
    # Only this project's own reader lets tensors take the whole file for their storage.
    assert found[0]["a"].untyped_storage().nbytes() == later.stat().st_size


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x08" + b"\x00" * 7 + b"{}......"])
def test_what_is_no_safetensors_file_is_refused(tmp_path, content):
    path = tmp_path / "file.safetensors"
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError):
        read_safetensors_file(str(path))


def test_tensors_saved_on_a_gpu_are_opened_on_the_cpu(tmp_path):
    path, moved = tmp_path / "saved.bin", tmp_path / "moved.bin"
    torch.save([{"params": [0], "lr": torch.tensor(0.5)}], path)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(moved, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("data.pkl"):
                # A pickled text: its length, four bytes, and its letters.
                assert b"\x03\x00\x00\x00cpu" in data
                data = data.replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0")
            target.writestr(name, data)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(moved, weights_only=True)
    (group,), _ = read_torch_file(str(moved))
    assert group["lr"].device.type == "cpu" and group["lr"] == 0.5
