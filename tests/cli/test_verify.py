"""``colossalai-fork verify`` and ``colossalai-fork manifest``."""

import json
import zipfile

import pytest
import torch
from click.testing import CliRunner
from hostile_files import integer, pickled, tensor, text
from small_checkpoint import adam

from colossalai_fork import cli
from colossalai_fork.checkpoint_io.optimizer_restore.files import sources
from colossalai_fork.checkpoints import comparison


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments], env={"COLUMNS": "160"})


def problems(*arguments, exit_code=1):
    result = run("verify", "--json", *arguments)
    assert result.exit_code == exit_code, result.output
    return json.loads(result.output)["problems"]


@pytest.fixture
def one_file(tmp_path):
    torch.save(adam().state_dict(), tmp_path / "optimizer.bin")
    return tmp_path / "optimizer.bin"


def flip(path, tensor, bit=1):
    data = bytearray(path.read_bytes())
    data[data.index(tensor.numpy().tobytes())] ^= bit
    path.write_bytes(data)


@pytest.mark.parametrize("options", [(), ("--full",)])
def test_a_sound_checkpoint(checkpoint, one_file, options):
    for path in (checkpoint, one_file):
        result = run("verify", *options, path)
        assert result.exit_code == 0 and "Nothing is wrong" in result.output and "3 parameters" in result.output


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_flipped_bit(checkpoint, shard, has_manifest):
    if has_manifest:
        assert run("manifest", checkpoint).exit_code == 0
    flip(shard, adam().state_dict()["state"][0]["exp_avg_sq"])
    assert problems(checkpoint, exit_code=0) == []
    first, *others = problems("--full", checkpoint)
    assert (first["file"], first["param_id"], first["key"]) == (str(shard), 0, "exp_avg_sq")
    assert first["damaged"] and "checksum" in first["text"]
    assert ["SHA-256" in other["text"] for other in others] == [True] * has_manifest


@pytest.mark.parametrize(
    "value, kind", [(float("nan"), "NaN"), (float("inf"), "infinity"), (-float("inf"), "infinity")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("layout", ["whole", "transposed", "every second"])
def test_numbers_that_are_not_finite(checkpoint, shard, value, kind, dtype, layout):
    states = torch.load(shard, weights_only=True)
    numbers = torch.ones(2, 6, dtype=dtype)
    # What lies between the numbers of a view is not looked at.
    numbers[:, 1::2] = float("nan") if layout == "every second" else 1
    numbers[1, 4] = value
    views = {"whole": numbers, "transposed": numbers.t(), "every second": numbers[:, ::2]}
    states[0]["other"] = views[layout]
    torch.save(states, shard)
    assert problems(checkpoint, exit_code=0) == []
    (found,) = problems("--full", checkpoint)
    assert (found["param_id"], found["key"]) == (0, "other")
    assert found["text"] == f"the state holds {kind} (1 of its numbers)"


def test_large_numbers_are_no_infinity(checkpoint, shard):
    states = torch.load(shard, weights_only=True)
    states[0]["other"] = torch.full((100,), 3e38)
    torch.save(states, shard)
    assert problems("--full", checkpoint, exit_code=0) == []


def test_a_tensor_of_several_pieces(checkpoint, shard):
    states = torch.load(shard, weights_only=True)
    states[0]["other"] = torch.zeros(5 << 20)
    states[0]["other"][(4 << 20) + 7] = float("nan")
    torch.save(states, shard)
    assert [found["key"] for found in problems("--full", checkpoint)] == ["other"]
    flip(shard, states[1]["exp_avg"])
    assert [found["key"] for found in problems("--full", checkpoint)] == ["exp_avg", "other"]


def test_two_layouts_of_the_same_state(checkpoint, one_file):
    assert problems(checkpoint, "--against", one_file, exit_code=0) == []
    assert problems(one_file, "--against", checkpoint, exit_code=0) == []


@pytest.mark.parametrize("piece", [1, 2, 1 << 20])
def test_what_differs(checkpoint, shard, one_file, monkeypatch, piece):
    monkeypatch.setattr(comparison, "PIECE", piece)
    states = torch.load(shard, weights_only=True)
    states[0]["exp_avg"][0, :2] += 1
    states[0]["exp_avg_sq"][1, 1] = float("nan")
    states[1]["step"] = 1.0
    states[1]["other"] = "text"
    torch.save(states, shard)
    groups = torch.load(one_file, weights_only=True)
    groups["param_groups"][1]["lr"] = 0.5
    groups["state"][0]["exp_avg_sq"][1, 1] = float("nan")
    torch.save(groups, one_file)
    found = [
        (each["param_id"], each["key"], each["text"], each["expected"], each["found"])
        for each in problems(checkpoint, "--against", one_file)
    ]
    assert found == [
        (None, None, "it differs: 'lr' of parameter group 1", "0.5", "0.25"),
        (0, "exp_avg", "it differs: 2 of 6 numbers", None, None),
        (1, "step", "it differs: the value", "float32, one number ()", "1.0"),
        (1, "other", "it differs: the value", "nothing", "'text'"),
    ]


def test_state_that_only_one_has(checkpoint, one_file):
    states = torch.load(one_file, weights_only=True)
    del states["state"][1]
    torch.save(states, one_file)
    assert {each["param_id"] for each in problems(checkpoint, "--against", one_file)} == {1}
    assert {each["param_id"] for each in problems(one_file, "--against", checkpoint)} == {1}


def test_what_cannot_be_found_out(checkpoint, one_file, tmp_path, monkeypatch):
    assert run("verify", tmp_path / "none").exit_code == 2
    one_file.write_bytes(one_file.read_bytes()[:-1])
    result = run("verify", checkpoint, "--against", one_file)
    assert result.exit_code == 2 and "nothing to compare with" in result.output
    monkeypatch.setattr(comparison, "differences", lambda *arguments: 1 / 0)
    assert run("verify", checkpoint, "--against", checkpoint).exit_code == 2


def test_all_that_is_wrong_is_listed(checkpoint, shard):
    states = torch.load(shard, weights_only=True)
    states[0]["exp_avg_sq"] = torch.full((7,), float("nan"))
    states[9] = {}
    torch.save(states, shard)
    flip(shard, states[1]["exp_avg"])
    texts = "\n".join(found["problem"] for found in problems("--full", checkpoint))
    for text in ("does not have the parameter's shape", "no parameter group has this id", "checksum", "NaN (7 of"):
        assert text in texts


def test_the_manifest(checkpoint, shard):
    result = run("manifest", checkpoint)
    assert result.exit_code == 0
    path = checkpoint / "pytorch_optim.bin.index.json.manifest"
    content = json.loads(path.read_text())
    assert set(content["files"]) == {file.name for file in checkpoint.iterdir() if file != path}
    assert content["files"][shard.name]["bytes"] == shard.stat().st_size
    torch.save(torch.load(shard, weights_only=True), shard.with_suffix(".other"))
    shard.write_bytes(shard.read_bytes() + b"x")
    assert "the size that the manifest gives" in problems(checkpoint)[0]["text"]
    # What no optimizer could load gets none.
    assert run("manifest", checkpoint).exit_code == 1
    assert json.loads(path.read_text()) == content
    # A checkpoint that was saved again gets a new one.
    shard.with_suffix(".other").replace(shard)
    assert run("manifest", checkpoint).exit_code == 0
    assert problems("--full", checkpoint, exit_code=0) == []
    assert not [file for file in checkpoint.iterdir() if file.name.startswith(".")]


@pytest.mark.parametrize("write", ["safetensors", "torch"])
def test_headers_of_large_files_only(tmp_path, write):
    """20 GB, nearly all of them a hole in the file."""
    lengths = [(20 << 30) // 16 // 4] * 16
    path = {"safetensors": sparse_safetensors, "torch": sparse_torch_file}[write](tmp_path, lengths)
    before = sources.bytes_read()
    for command in ("inspect", "verify"):
        assert run(command, path).exit_code == 0
    found = json.loads(run("inspect", "--json", path).output)
    assert found["states"] == [{"key": "exp_avg", "kind": "float32", "parameters": 16, "bytes": 20 << 30}]
    assert sources.bytes_read() - before < 100_000


def sparse_safetensors(directory, lengths):
    """Write what asynchronous saving writes of zeros, with holes for the zeros."""
    header, end = {}, 0
    for number, length in enumerate(lengths):
        start, end = end, end + 4 * length
        header[f"state.{number}.exp_avg"] = {"dtype": "F32", "shape": [length], "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    with (directory / "states.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + end)
    torch.save([{"params": list(range(len(lengths)))}], directory / "groups.bin")
    index = {
        "weight_map": {str(number): "states.safetensors" for number in range(len(lengths))},
        "metadata": {"param_groups": "groups.bin"},
    }
    (directory / "optim.safetensors.index.json").write_text(json.dumps(index))
    return directory


def mapping(**items):
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def sparse_torch_file(directory, lengths):
    """Write what torch.save writes of zeros, with holes for the zeros and without checksums."""
    states = b"}("
    for number, length in enumerate(lengths):
        states += integer(number) + mapping(exp_avg=tensor(length, (length,), key=str(number)))
    params = b"](" + b"".join(map(integer, range(len(lengths)))) + b"e"
    groups = b"](" + mapping(params=params) + b"e"
    with zipfile.ZipFile(directory / "optimizer.bin", "w") as file:
        file.writestr("archive/data.pkl", pickled(mapping(state=states + b"u", param_groups=groups)))
        file.writestr("archive/version", b"3\n")
        for number, length in enumerate(lengths):
            record = zipfile.ZipInfo(f"archive/data/{number}")
            record.file_size = record.compress_size = 4 * length
            record.CRC, record.header_offset = 0, file.fp.tell()
            file.fp.write(record.FileHeader())
            file.fp.seek(4 * length, 1)
            file.filelist.append(record)
            file.NameToInfo[record.filename] = record
        file.start_dir = file.fp.tell()
    return directory / "optimizer.bin"
