"""Opening files that torch.save wrote: both formats, every kind of tensor, and what only looks like one of them."""

import collections
import io
import os
import pickle
import re
import struct
import tarfile
import zipfile

import numpy
import pytest
import torch
from guarded import MEGABYTE, guarded
from hostile_files import archive, bomb, call, legacy, name, pickled, rewritten, tensor, text

from colossalai_fork.checkpoint_io.optimizer_restore.files.reading import UnreadableFileError, plain
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor
from colossalai_fork.checkpoint_io.optimizer_restore.files.torch_file import open_torch_file

DTYPES = [
    getattr(torch, dtype)
    for dtype in (
        "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128 float8_e4m3fn float8_e5m2"
    ).split()
]
# Older versions of torch cannot save them.
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6):
    DTYPES += [torch.uint16, torch.uint32, torch.uint64]


def content_of(path):
    return plain(open_torch_file(str(path)).content)


def refused(path):
    with pytest.raises(UnreadableFileError) as info:
        content_of(path)
    return str(info.value)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        same_kind = type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        return same_kind and one.requires_grad == other.requires_grad and torch.equal(bytes_of(one), bytes_of(other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def bytes_of(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda value: value if isinstance(value, str) else type(value).__name__)
def test_every_dtype_and_layout_of_a_tensor(tmp_path, dtype, zip_format):
    whole = (torch.arange(60) % 7).to(dtype).view(5, 4, 3)
    content = {
        0: {"whole": whole, "transposed": whole.transpose(0, 2), "strided": whole[::2, 1:, :]},
        1: {"scalar": whole[1, 1, 1].clone(), "nothing": whole[:0], "view": whole.view(-1)[7:11], "none": None},
        2: {"expanded": whole[0, 0, :1].expand(4), "list": [whole[0], 3], "text": "text", "pair": (1, 2.5)},
        3: {"deep": whole.view(5, 1, 2, 2, 1, 3, 1), "same": whole, "empty": torch.empty(0, dtype=dtype)},
    }
    path = tmp_path / "file.bin"
    torch.save(content, path, _use_new_zipfile_serialization=zip_format)
    opened = open_torch_file(str(path))
    assert not opened.fell_back and type(opened.content[0]["whole"]) is SavedTensor
    assert equal(content, plain(opened.content))


def test_many_tensors(tmp_path):
    # Enough for memo indices of one, two and four bytes, sizes of one, two and four, and shared data.
    content = {number: {"step": torch.tensor(float(number)), "a": torch.arange(number % 5)} for number in range(3000)}
    content.update({-number: {"a": torch.zeros(300 * number), "b": torch.ones(number, 7)} for number in range(1, 9)})
    content["large"] = torch.zeros(70_000)[100:]
    content["same"] = [content[7]["step"], content["large"], content[8]["a"].view(3, 1)]
    content["again"] = content["same"]
    path = tmp_path / "file.bin"
    torch.save(content, path)
    found = content_of(path)
    assert equal(content, found)
    assert found["again"] is found["same"]


def test_parameters_and_gradients(tmp_path):
    marked = torch.nn.Parameter(torch.ones(3))
    marked.note = "left out"
    content = [
        torch.nn.Parameter(torch.ones(3)),
        torch.nn.Parameter(torch.ones(3), requires_grad=False),
        torch.ones(3, requires_grad=True),
        marked,
    ]
    path = tmp_path / "file.bin"
    torch.save(content, path)
    assert equal(content, content_of(path))


def test_values_of_torch(tmp_path):
    content = [torch.strided, torch.float16, torch.Size([1]), torch.device("cuda:1")]
    path = tmp_path / "file.bin"
    torch.save(content, path)
    assert content_of(path) == content


def test_numpy_numbers_are_numbers(tmp_path):
    content = [{"lr": numpy.linspace(0, 1, 3)[1], "steps": numpy.int32(3), "betas": numpy.array([0.9, 0.99])}]
    path = tmp_path / "groups.bin"
    torch.save(content, path)
    (found,) = content_of(path)
    assert found["lr"] == 0.5 and found["steps"] == 3 and found["betas"].tolist() == [0.9, 0.99]


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
@pytest.mark.parametrize("reason", ["on the meta device", "quantised"])
def test_what_cannot_be_copied_says_why(tmp_path, reason):
    quantised = reason == "quantised"
    value = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8) if quantised else torch.ones(2, device="meta")
    path = tmp_path / "file.bin"
    torch.save({0: {"a": value}}, path)
    found = open_torch_file(str(path)).content[0]["a"]
    assert reason in found.refusal and found.shape == (2,)
    assert reason in refused(path)


@pytest.mark.parametrize(
    "value",
    [torch.eye(3).to_sparse(), torch.ones(2, dtype=torch.complex64).conj()],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_only_torch_can_make_is_left_to_it(tmp_path, value):
    path = tmp_path / "file.bin"
    torch.save({0: {"a": value, "b": torch.ones(3)}}, path)
    opened = open_torch_file(str(path))
    assert opened.fell_back
    found = opened.content[0]["a"]
    assert found.is_sparse == value.is_sparse and torch.equal(found.to_dense(), value.to_dense())


class Own:
    def __init__(self):
        self.tensor = torch.ones(3)


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
def test_a_class_of_the_users_own_is_allowed_by_the_call_that_the_message_names(tmp_path, zip_format):
    path = tmp_path / "file.bin"
    torch.save([Own()], path, _use_new_zipfile_serialization=zip_format)
    assert "torch.serialization.add_safe_globals([test_torch_file.Own])" in refused(path)
    torch.serialization.add_safe_globals([Own])
    try:
        opened = open_torch_file(str(path))
    finally:
        torch.serialization.clear_safe_globals()
    assert opened.fell_back and torch.equal(opened.content[0].tensor, torch.ones(3))


class RunsCode:
    """Pickles into a call of os.mkdir, which leaves a trace if anyone opens the pickle without care."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
def test_a_torch_file_that_runs_code_is_refused(tmp_path, zip_format):
    path = tmp_path / "file.bin"
    torch.save({0: RunsCode(tmp_path / "trace")}, path, _use_new_zipfile_serialization=zip_format)
    assert "run code" in refused(path)
    assert not (tmp_path / "trace").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "trace").exists(), "the attack itself does not work, so this test proves nothing"


# ======================================
# what is not a torch file
# ======================================


@pytest.mark.parametrize("content", [b"x", bytes(range(256)) * 20, b"PK\x03\x04 no archive", pickle.dumps([1], 2)])
def test_what_is_no_torch_file_is_refused(tmp_path, content, monkeypatch):
    monkeypatch.setattr(torch, "load", None)
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    assert "torch file" in refused(path)


def test_a_tar_archive_is_refused_before_torch_sees_it(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "load", None)
    path = tmp_path / "file.bin"
    with tarfile.open(path, "w") as tar:
        for record in ("storages", "tensors", "pickle"):
            tar.addfile(tarfile.TarInfo(record), io.BytesIO())
    assert "not a torch file" in refused(path)


def test_a_program_is_refused(tmp_path):
    class Module(torch.nn.Module):
        def forward(self, x):
            return x

    path = tmp_path / "file.bin"
    torch.jit.save(torch.jit.script(Module()), str(path))
    assert "TorchScript" in refused(path)


@pytest.mark.parametrize(
    "record", ["constants.pkl", "code/__torch__.py", "extra/x", "data.pkl.debug_pkl", "data/", "data/a/b"]
)
def test_records_that_torch_does_not_write_are_refused(tmp_path, record):
    path = tmp_path / "file.bin"
    archive(path, pickled(tensor()), {record: b"x"})
    assert re.search("TorchScript|no record|a folder has content", refused(path))


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
def test_a_truncated_torch_file_is_refused(tmp_path, keep, zip_format):
    path = tmp_path / "file.bin"
    torch.save({0: {"a": torch.arange(500.0)}}, path, _use_new_zipfile_serialization=zip_format)
    with open(path, "r+b") as file:
        file.truncate(int(path.stat().st_size * keep))
    refused(path)


def test_an_empty_file_and_a_missing_one_and_a_pipe_are_refused(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"")
    assert "empty" in refused(path)
    path.unlink()
    with pytest.raises(UnreadableFileError, match="does not exist") as info:
        open_torch_file(str(path))
    assert info.value.missing
    os.mkfifo(path)
    assert "regular file" in refused(path)
    assert "regular file" in refused(tmp_path)
    for name_of_none in ("a" * 5000, "a\0b"):
        refused(tmp_path / name_of_none)


# ======================================
# archives
# ======================================


def test_an_archive_that_was_packed_again_is_read(tmp_path):
    path = tmp_path / "file.bin"
    # Bytes that compression makes longer, so that all lengths seem to be right.
    table = torch.randint(0, 256, (5000,), dtype=torch.uint8)
    content = {0: {"table": table, "zeros": torch.zeros(5000)}}
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        torch.save(content, path)
        rewritten(path, lambda records: None, compression)
        assert equal(content_of(path), content)
        assert equal(torch.load(path, weights_only=True), content), "torch reads it, too"


def test_an_archive_with_folders_is_read(tmp_path):
    path = tmp_path / "file.bin"
    torch.save([torch.ones(2)], path)
    with zipfile.ZipFile(path) as file:
        records = {record: file.read(record) for record in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for record, data in {"file/": b"", "file/data/": b"", **records}.items():
            file.writestr(record, data)
    assert equal(content_of(path), [torch.ones(2)])


def test_a_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "file.bin"
    bomb(path, 512 * MEGABYTE)
    outcome = guarded(refused, path, seconds=20, memory=100 * MEGABYTE)
    assert outcome.kind == "returned" and "far more than the file" in outcome.value


def changed_ends(data):
    """Ways in which the ends and the directory of an archive lie."""
    end = data.rindex(b"PK\x05\x06")
    first = data.index(b"PK\x01\x02")
    yield "comment", data[:-2] + b"\x03\x00abc"
    yield "something follows", data + b"x"
    yield "something precedes", b"x" + data
    yield "count", data[: end + 8] + b"\x01\x00\x01\x00" + data[end + 12 :]
    yield "disk", data[: end + 4] + b"\x01\x00" + data[end + 6 :]
    yield "directory elsewhere", data[: end + 16] + struct.pack("<I", first + 1) + data[end + 20 :]
    yield "encrypted", data[: first + 8] + b"\x01\x08" + data[first + 10 :]
    yield "method", data[: first + 10] + b"\x63\x00" + data[first + 12 :]
    yield "offset", data[: first + 42] + struct.pack("<I", 64) + data[first + 46 :]
    yield "size", data[: first + 20] + struct.pack("<II", 1 << 30, 1 << 30) + data[first + 28 :]
    yield "full size", data[: first + 20] + b"\xff" * 8 + data[first + 28 :]
    yield "checksum", data[: first + 16] + b"abcd" + data[first + 20 :]
    yield "name", data[: first + 46] + b"X" + data[first + 47 :]
    yield "local name", data[:30] + b"X" + data[31:]
    yield "local signature", b"PK\x03\x05" + data[4:]
    yield "local extra", data[:28] + b"\xff\xff" + data[30:]


def saved(path):
    torch.save({0: {"a": torch.arange(500.0)}}, path)
    return path.read_bytes()


@pytest.mark.parametrize("what", ["torch", "zipfile"])
def test_an_archive_that_contradicts_itself_is_refused(tmp_path, what):
    path = tmp_path / "file.bin"
    data = saved(path)
    if what == "zipfile":
        rewritten(path, lambda records: None)
        data = path.read_bytes()
    for how, changed in changed_ends(data):
        path.write_bytes(changed)
        with pytest.raises(UnreadableFileError):
            print(how, content_of(path))


def test_two_records_of_one_name_and_records_that_overlap_are_refused(tmp_path):
    path = tmp_path / "file.bin"
    with pytest.warns(UserWarning, match="Duplicate name"):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", pickled(tensor()))
            for _ in range(2):
                file.writestr("archive/data/0", bytes(8))
    assert "twice" in refused(path)
    archive(path, pickled(tensor()), {"data/1": bytes(8)})
    data = path.read_bytes()
    # The directory says that the last record is where the one before is.
    offsets = [at.start() + 42 for at in re.finditer(b"PK\x01\x02", data)]
    changed = data[: offsets[-1]] + data[offsets[-2] : offsets[-2] + 4] + data[offsets[-1] + 4 :]
    path.write_bytes(changed)
    assert "overlap" in refused(path)


def test_two_folders_are_refused(tmp_path):
    path = tmp_path / "file.bin"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", pickled(tensor()))
        file.writestr("b/data/0", bytes(8))
    assert "no record" in refused(path)


def test_an_archive_of_more_records_than_narrow_numbers_count(tmp_path):
    path = tmp_path / "file.bin"
    torch.save([torch.tensor(number) for number in range(70_000)], path)
    assert torch.stack(content_of(path)).tolist() == list(range(70_000))


def test_an_archive_larger_than_narrow_numbers_tell(tmp_path):
    path = tmp_path / "file.bin"
    # Almost all of it is a hole, which takes no space on the disk.
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            "archive/data.pkl", pickled(b"(", tensor(1 << 30, (2,), offset=(1 << 30) - 2), tensor(key="1"), b"t")
        )
        file.writestr("archive/version", b"3\n")
        for key, length in (("0", 1 << 32), ("1", 8)):
            info = zipfile.ZipInfo(f"archive/data/{key}")
            with file.open(info, "w", force_zip64=True) as record:
                if length > 8:
                    _hole(file, record, length - 8)
                record.write(struct.pack("<ff", 1, 2))
    first, second = content_of(path)
    assert first.tolist() == second.tolist() == [1, 2]


def _hole(archive_file, record, length):
    archive_file.fp.seek(length, os.SEEK_CUR)
    record._file_size += length
    record._compress_size += length
    record._crc = 0


def test_a_checksum_that_is_wrong_is_seen_and_one_that_is_missing_is_not_missed(tmp_path):
    path = tmp_path / "file.bin"
    saved(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"X\x01\x00\x00\x00a")
    data[at + 5] = ord("b")
    path.write_bytes(data)
    assert "checksum" in refused(path)
    data = bytearray(saved(path))
    # Where the checksum is in the headers of the archive's directory, as torch.serialization.set_crc32_options leaves it.
    for match in re.finditer(b"PK\x01\x02", bytes(data)):
        data[match.start() + 16 : match.start() + 20] = bytes(4)
    path.write_bytes(data)
    assert torch.equal(content_of(path)[0]["a"], torch.arange(500.0))


@pytest.mark.parametrize(
    "record, data",
    [
        ("version", b"0\n"),
        ("version", b"11"),
        ("version", b"x"),
        ("version", b"3\n" + bytes(100)),
        ("version", None),
        ("byteorder", b"bit"),
        (".format_version", b"one"),
        (".storage_alignment", b""),
        (".data/serialization_id", b"\x80"),
    ],
)
def test_facts_that_torch_would_not_understand_are_refused(tmp_path, record, data):
    """Found by the fuzzer: some versions of torch refuse them, so a load would depend on the version."""
    path = tmp_path / "file.bin"
    archive(path, pickled(tensor()), {record: data})
    assert re.search("damaged|no record", refused(path))


def test_the_version_may_be_where_torch_looks_for_it_first(tmp_path):
    path = tmp_path / "file.bin"
    archive(path, pickled(tensor()), {"version": None, ".data/version": b"3"})
    assert content_of(path).tolist() == [0, 0]


def test_data_that_is_no_multiple_of_its_elements(tmp_path):
    """Torch before 2.7 loads what it writes here."""
    path = tmp_path / "file.bin"
    whole = torch.arange(10, dtype=torch.uint8)
    torch.save([whole[:8].view(torch.float32)] * 20 + [whole[:4].clone().view(torch.float32)], path)
    assert content_of(path)[0].equal(whole[:8].view(torch.float32))


def test_data_of_the_other_order_of_bytes_is_left_to_torch(tmp_path):
    path = tmp_path / "file.bin"
    archive(path, pickled(tensor()), {"byteorder": b"big", "data/0": struct.pack(">ff", 1, 2)})
    opened = open_torch_file(str(path))
    assert opened.fell_back and opened.content.tolist() == [1, 2]


# ======================================
# tensors
# ======================================

WRONG = {
    "too long": tensor(shape=(3,)),
    "far too long": tensor(shape=(1 << 40,)),
    "too far": tensor(shape=(1,), offset=2),
    "strides too far": tensor(shape=(2,), stride=(2,)),
    "negative size": tensor(shape=(-1,)),
    "negative stride": tensor(shape=(2,), stride=(-1,)),
    "negative offset": tensor(shape=(1,), offset=-1),
    "negative length": tensor(numel=-2),
    "no stride": tensor(shape=(2,), stride=()),
    "longer than its record": tensor(numel=3, shape=(3,)),
    "shorter than its record": tensor(numel=1, shape=(1,)),
    "of wide numbers": tensor(kind="DoubleStorage"),
    "missing": tensor(key="7"),
    "up the tree": tensor(key="../data.pkl"),
    "repeated": tensor(shape=(2 * 10**9,), stride=(0,)),
    "repeated in many": b"(" + tensor(shape=(1 << 20,), stride=(0,)) * 40 + b"t",
    "more than there are numbers": tensor(shape=(1 << 40, 1 << 40), stride=(0, 0)),
    "of no kind": tensor(kind="OtherStorage"),
    "without data": call(
        "torch._utils", "_rebuild_tensor_v2", b"NK\x00", b"(K\x02tK\x01\x85\x89", call("collections", "OrderedDict")
    ),
    "in two ways": b"(" + tensor() + tensor(numel=8, shape=(8,), kind="ByteStorage") + b"t",
    "not as saved": call("torch", "Tensor", b"K\x02"),
    "set later": tensor() + b"(K\x01tb",
    "hooked": call(
        "torch._utils",
        "_rebuild_tensor_v2",
        b"(" + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu") + b"K\x02tQ",
        b"K\x00K\x02\x85K\x01\x85\x89}K\x01K\x02s",
    ),
    "from outside": text("0") + b"Q",
    "from a module": b"(" + text("module") + text("0") + b"tQ",
    "a storage": b"(" + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu") + b"K\x02tQ",
    "a view of a class": call(
        "torch._tensor",
        "_rebuild_from_type_v2",
        name("os", "system"),
        name("torch", "Tensor"),
        text("a") + b"\x85",
        b"}",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_tensor_that_cannot_be_is_refused(tmp_path, what):
    path = tmp_path / "file.bin"
    archive(path, pickled(WRONG[what]))
    outcome = guarded(refused, path, memory=100 * MEGABYTE)
    assert outcome.kind == "returned", outcome


def test_what_torch_makes_is_checked_before(tmp_path):
    path = tmp_path / "file.bin"
    indices = tensor(numel=9, shape=(3, 3), stride=(3, 1), kind="LongStorage")
    size = call("torch", "Size", b"K\x03K\x03\x86")
    sparse = call(
        "torch._utils",
        "_rebuild_sparse_tensor",
        call("torch.serialization", "_get_layout", text("torch.sparse_coo")),
        b"(" + indices + tensor(key="1") + size + b"t",
    )
    archive(path, pickled(sparse), {"data/1": bytes(8)})
    assert "cut short" in refused(path)


def test_an_expanded_tensor_may_be_larger_than_its_file(tmp_path):
    path = tmp_path / "file.bin"
    content = [torch.ones(1).expand(1000, 1000), torch.ones(3, 1).expand(3, 5)]
    torch.save(content, path)
    assert path.stat().st_size < 10_000
    assert equal(content, content_of(path))


def test_tensors_saved_on_a_gpu_are_opened_on_the_cpu(tmp_path):
    path, moved = tmp_path / "saved.bin", tmp_path / "moved.bin"
    torch.save([{"params": [0], "lr": torch.tensor(0.5)}], path)
    # A pickled text: its length, four bytes, and its letters.
    archive(
        moved,
        zipfile.ZipFile(path).read("saved/data.pkl").replace(text("cpu"), text("cuda:0")),
        {"data/0": struct.pack("<f", 0.5)},
    )
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(moved, weights_only=True)
    (group,) = content_of(moved)
    assert group["lr"].device.type == "cpu" and group["lr"] == 0.5


def test_a_path_that_is_no_text_is_read(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff\xfe.bin")
    with open(path, "wb") as file:
        torch.save({0: {"a": torch.arange(5.0)}}, file)
    assert torch.equal(content_of(os.fsdecode(path))[0]["a"], torch.arange(5.0))


# ======================================
# the older format
# ======================================


def test_a_long_file_of_the_older_format(tmp_path):
    # Longer pickles than are read at first.
    content = {"text": "x" * (3 << 20), "list": list(range(300_000)), "tensor": torch.arange(5)}
    path = tmp_path / "file.bin"
    path.write_bytes(legacy(content))
    assert equal(content_of(path), content)


def test_a_file_of_the_older_format_that_contradicts_itself_is_refused(tmp_path):
    path = tmp_path / "file.bin"
    data = legacy({"a": torch.arange(5.0), "b": torch.arange(3)})
    keys = re.findall(rb"X\x0e\x00\x00\x00(\d{14})", data)
    for changed in (
        data + b"x",
        data[:-1],
        data.replace(keys[-1], b"1" * 14, 1),
        data.replace(struct.pack("<q", 3), struct.pack("<q", 4)),
        data.replace(struct.pack("<q", 3), struct.pack("<q", -1)),
        data.replace(text("little_endian") + b"q\x02\x88", text("little_endian") + b"q\x02\x89"),
        data.replace(b"M\xe9\x03.", b"M\xe8\x03.", 1),
        # A reference to data of five parts, as in torch's newer format.
        data.replace(b"K\x05Nt", b"K\x05t"),
    ):
        assert changed != data
        path.write_bytes(changed)
        refused(path)


def test_a_file_that_is_also_a_tar_archive_is_not_unpacked(tmp_path, monkeypatch):
    """Under torch 2.5.1, torch.load unpacks such a file to where its records say."""
    path = tmp_path / "file.bin"
    monkeypatch.setattr(tarfile, "open", None)
    torch.serialization.add_safe_globals([Own])
    try:
        path.write_bytes(legacy([Own()]))
        assert open_torch_file(str(path)).fell_back
    finally:
        torch.serialization.clear_safe_globals()


def test_a_file_that_is_overwritten_while_torch_reads_it_is_not_believed(tmp_path, monkeypatch):
    path = tmp_path / "file.bin"
    torch.save([torch.eye(3).to_sparse()], path)
    load = torch.load

    def overwriting(*arguments, **options):
        content = load(*arguments, **options)
        path.write_bytes(path.read_bytes() + b"x")
        return content

    monkeypatch.setattr(torch, "load", overwriting)
    assert "written to" in refused(path)


def test_ordered_and_default_dictionaries_of_tensors(tmp_path):
    content = collections.OrderedDict(a=torch.ones(2), b=collections.defaultdict(list, c=[torch.zeros(1)]))
    path = tmp_path / "file.bin"
    torch.save(content, path)
    found = content_of(path)
    assert type(found) is collections.OrderedDict and equal(content["b"]["c"], found["b"]["c"])
    assert found["b"].default_factory is list
