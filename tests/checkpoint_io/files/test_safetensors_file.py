"""Opening safetensors files: tensors are descriptors, pickled values are plain data, and nothing is believed unchecked."""

import io
import json
import os
import pickle
import struct

import pytest
import torch
from guarded import MEGABYTE, guarded
from hostile_files import archive, call, integer, legacy, name, pickled
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from colossalai_fork.checkpoint_io.optimizer_restore.files.reading import UnreadableFileError, plain
from colossalai_fork.checkpoint_io.optimizer_restore.files.safetensors_file import open_safetensors_file


def content_of(path):
    return plain(open_safetensors_file(str(path)).content)


def refused(path):
    with pytest.raises(UnreadableFileError) as info:
        content_of(path)
    return str(info.value)


def write(path, tensors, pickles=()):
    entries = dict(tensors)
    for key, data in dict(pickles).items():
        entries[key] = torch.tensor(list(data), dtype=torch.uint8)
    save_file(entries, str(path), {"format": "pt", "non_tensor_keys": json.dumps(list(dict(pickles)))})


def write_raw(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_values_are_tensors_or_plain_data(tmp_path):
    path = tmp_path / "file.safetensors"
    groups = [{"lr": torch.tensor(0.5), "betas": (0.9, 0.99), "params": [0]}]
    pickles = {"state.0.step": pickle.dumps(7), "param_groups": pickle.dumps(groups)}
    write(path, {"state.0.exp_avg": torch.arange(3.0)}, pickles)
    found = content_of(path)
    assert found["state.0.step"] == 7
    assert torch.equal(found["state.0.exp_avg"], torch.arange(3.0))
    assert torch.equal(found["param_groups"][0]["lr"], torch.tensor(0.5))
    assert found["param_groups"][0]["betas"] == (0.9, 0.99)


@pytest.mark.parametrize(
    "dtype",
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 uint16 uint32 uint64".split(),
)
def test_every_dtype(tmp_path, dtype):
    path = tmp_path / "file.safetensors"
    value = (torch.arange(6) % 2).to(getattr(torch, dtype)).view(2, 3)
    tensors = {"state.0.a": value, "state.0.b": value[0, 0].clone(), "state.0.c": torch.empty(0, 3, dtype=value.dtype)}
    save_file(tensors, path)
    for key, found in content_of(path).items():
        assert found.dtype == value.dtype and found.shape == tensors[key].shape
        assert found.tolist() == tensors[key].tolist()


@pytest.mark.parametrize(
    "value",
    [
        [torch.ones(3), torch.nn.Parameter(torch.zeros(2)), torch.tensor(2, dtype=torch.int64)],
        torch.arange(12.0).view(3, 4).t(),
        torch.ones(3, dtype=torch.bfloat16),
    ],
    ids=["several", "transposed", "bfloat16"],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_tensors_in_pickled_values(tmp_path, value, protocol):
    path = tmp_path / "file.safetensors"
    write(path, {}, {"param_groups": pickle.dumps([value, value], protocol)})
    first, second = content_of(path)["param_groups"]
    for found, expected in zip(first, value):
        assert found.dtype == expected.dtype and found.tolist() == expected.tolist()


class RunsCode:
    """Pickles into a call of os.mkdir, which leaves a trace if anyone opens the pickle without care."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Smuggles:
    """Pickles into torch's own function that opens bytes with all that pickle can do."""

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return torch.storage._load_from_bytes, (self.data,)


@pytest.mark.parametrize("zip_format", [True, False, None], ids=["zip", "legacy", "pickle"])
def test_a_pickled_value_that_runs_code_is_refused(tmp_path, zip_format):
    path = tmp_path / "file.safetensors"
    value = RunsCode(tmp_path / "trace")
    if zip_format is not None:
        inner = io.BytesIO()
        torch.save(value, inner, _use_new_zipfile_serialization=zip_format)
        value = Smuggles(inner.getvalue())
    write(path, {}, {"param_groups": pickle.dumps(value)})
    refused(path)
    assert not (tmp_path / "trace").exists()


def test_a_program_in_a_pickled_value_is_refused(tmp_path):
    class Module(torch.nn.Module):
        def forward(self, x):
            return x

    inner = io.BytesIO()
    torch.jit.save(torch.jit.script(Module()), inner)
    path = tmp_path / "file.safetensors"
    write(path, {}, {"param_groups": pickle.dumps(Smuggles(inner.getvalue()))})
    assert "not in torch's format" in refused(path)


def inner_tensor(data, numel):
    return call(
        "torch._utils",
        "_rebuild_tensor_v2",
        call("torch.storage", "_load_from_bytes", b"B" + struct.pack("<I", len(data)) + data),
        b"K\x00" + integer(numel) + b"\x85K\x01\x85\x89",
        call("collections", "OrderedDict"),
    )


def test_a_tensor_in_a_pickled_value_is_no_longer_than_its_data(tmp_path):
    path = tmp_path / "file.safetensors"
    data = legacy(torch.ones(3).untyped_storage())
    storage = legacy(
        torch.storage.TypedStorage(wrap_storage=torch.ones(3).untyped_storage(), dtype=torch.float32, _internal=True)
    )
    write(path, {}, {"param_groups": pickled(inner_tensor(storage, 3))})
    assert torch.equal(content_of(path)["param_groups"], torch.ones(3))
    for changed, numel in ((storage, 4), (storage, 3000), (storage[:-1], 3), (storage + b"x", 3), (data, 13)):
        write(path, {}, {"param_groups": pickled(inner_tensor(changed, numel))})
        refused(path)


@pytest.mark.parametrize("content", [{"a": 1}, [], torch.ones(3), "text"], ids=repr)
def test_bytes_that_hold_more_than_the_data_of_a_tensor_are_refused(tmp_path, content):
    path = tmp_path / "file.safetensors"
    write(path, {}, {"param_groups": pickled(inner_tensor(legacy(content), 3))})
    refused(path)


def test_bytes_in_bytes_in_bytes_are_refused(tmp_path):
    path = tmp_path / "file.safetensors"
    data = legacy(Smuggles(legacy(Smuggles(legacy(1)))))
    write(path, {}, {"param_groups": pickled(inner_tensor(data, 3))})
    refused(path)


HEADERS = {
    "empty": (b"", b""),
    "no object": (b"[]", b""),
    "not unicode": (b'{"\xff": 1}', b""),
    "cut": (b'{"a": ', b""),
    "deep": (b'{"a":' * 100_000, b""),
    "long number": (b'{"a":' + b"9" * 10_000 + b"}", b""),
    "twice": (b'{"a": %s, "a": %s}' % (json.dumps(entry()).encode(), json.dumps(entry()).encode()), bytes(8)),
    "key twice": (b'{"a": {"dtype": "F32", "shape": [2], "shape": [2], "data_offsets": [0, 8]}}', bytes(8)),
    "too little data": ({"a": entry()}, bytes(7)),
    "too much data": ({"a": entry()}, bytes(9)),
    "gap": ({"a": entry(), "b": entry(offsets=(12, 20))}, bytes(20)),
    "overlap": ({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
    "backwards": ({"a": entry(offsets=(8, 0))}, bytes(8)),
    "negative": ({"a": entry(offsets=(-8, 0))}, b""),
    "negative size": ({"a": entry(shape=(-1, -2))}, bytes(8)),
    "other size": ({"a": entry(shape=(3,))}, bytes(8)),
    "huge size": ({"a": entry(shape=(1 << 62, 4, 0), offsets=(0, 0))}, b""),
    "huger size": ({"a": entry(shape=(1 << 64,))}, bytes(8)),
    "float size": ({"a": entry(shape=(2.0,))}, bytes(8)),
    "true size": ({"a": entry(shape=(True, 2))}, bytes(8)),
    "no size": ({"a": {**entry(), "shape": 2}}, bytes(8)),
    "no offsets": ({"a": {**entry(), "data_offsets": {"0": 8}}}, bytes(8)),
    "one offset": ({"a": {**entry(), "data_offsets": [8]}}, bytes(8)),
    "unknown dtype": ({"a": entry("F33")}, bytes(8)),
    "list of dtypes": ({"a": entry(["F32"])}, bytes(8)),
    "no dtype": ({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "more": ({"a": {**entry(), "more": 1}}, bytes(8)),
    "no description": ({"a": [1]}, b""),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, b""),
    "list of metadata": ({"__metadata__": ["a"]}, b""),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_that_contradicts_itself_is_refused(tmp_path, kind):
    path = tmp_path / "file.safetensors"
    write_raw(path, *HEADERS[kind])
    outcome = guarded(refused, path, memory=100 * MEGABYTE)
    assert outcome.kind == "returned" and outcome.value.isprintable() and len(outcome.value) < 1000, outcome
    # Ours is as strict as the library, and in the matter of unknown and repeated keys stricter.
    try:
        with safe_open(str(path), framework="pt") as file:
            [file.get_tensor(key) for key in file.keys()]
    except (SafetensorError, OSError):
        return
    assert kind in ("twice", "key twice", "more", "huge size")


@pytest.mark.parametrize("length", [1 << 20, 1 << 40, (1 << 64) - 1, 100_000_001])
def test_a_header_longer_than_the_file_is_refused(tmp_path, length):
    path = tmp_path / "file.safetensors"
    write_raw(path, {}, length=length)
    assert "header is cut short" in refused(path)


@pytest.mark.parametrize(
    "names",
    ['["b"]', "{}", "[1]", "[", '["a", "a"]', "[" * 100_000, "9" * 10_000, '["a"'],
    ids=["missing", "object", "numbers", "open", "twice", "deep", "long", "cut"],
)
def test_a_list_of_pickled_values_that_contradicts_the_file_is_refused(tmp_path, names):
    path = tmp_path / "file.safetensors"
    data = pickle.dumps(1)
    header = {"__metadata__": {"non_tensor_keys": names}, "a": entry("U8", (len(data),), (0, len(data)))}
    write_raw(path, header, data)
    assert len(refused(path)) < 1000


@pytest.mark.parametrize("data", [b"", b"\x80\x04", pickle.dumps(1) + b"x", pickle.dumps(1)[:-1]])
def test_a_pickled_value_that_is_not_whole_is_refused(tmp_path, data):
    path = tmp_path / "file.safetensors"
    write(path, {}, {"state.0.step": data})
    assert "'state.0.step'" in refused(path) or "state.0.step" in refused(path)


def test_a_pickled_value_is_one_row_of_bytes(tmp_path):
    path = tmp_path / "file.safetensors"
    data = pickle.dumps([1] * 30)
    data += b"." * (-len(data) % 4)
    header = {"__metadata__": {"non_tensor_keys": '["a"]'}, "a": entry("F32", (len(data) // 4,), (0, len(data)))}
    write_raw(path, header, data)
    refused(path)


def test_no_class_of_the_users_own_may_be_in_a_pickled_value(tmp_path):
    path = tmp_path / "file.safetensors"
    torch.serialization.add_safe_globals([RunsCode, os.mkdir])
    try:
        write(path, {}, {"param_groups": pickle.dumps(RunsCode(tmp_path / "trace"))})
        assert "only a file written by torch.save" in refused(path)
    finally:
        torch.serialization.clear_safe_globals()
    assert not (tmp_path / "trace").exists()


def test_an_archive_is_no_safetensors_file(tmp_path):
    path = tmp_path / "file.safetensors"
    archive(path, pickled(name("builtins", "list")))
    refused(path)
