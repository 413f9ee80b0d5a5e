import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.files.reading import plain
from colossalai.checkpoint_io.optimizer_restore.files.safetensors_file import open_safetensors_file
from colossalai.checkpoint_io.optimizer_restore.files.sources import UnreadableFileError
from colossalai.checkpoint_io.optimizer_restore.files.torch_file import open_torch_file
from safetensors.torch import save_file

CONTENT = {
    0: {"step": torch.tensor(3.0), "exp_avg": torch.arange(6.0).view(2, 3)},
    1: {"name": "b", "bf": torch.ones(2).bfloat16()},
}


def check(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            check(found[key], value)
        elif isinstance(value, torch.Tensor):
            assert found[key].dtype == value.dtype and torch.equal(found[key], value)
        else:
            assert found[key] == value


@pytest.mark.parametrize("new_format", [False, True])
def test_torch_files(tmp_path, new_format):
    torch.save(CONTENT, tmp_path / "file", _use_new_zipfile_serialization=new_format)
    check(plain(open_torch_file(str(tmp_path / "file")).content), CONTENT)


def test_safetensors_files(tmp_path):
    tensors = {f"{param_id}.{key}": v for param_id, s in CONTENT.items() for key, v in s.items() if key != "name"}
    save_file(tensors, tmp_path / "file.safetensors")
    check(plain(open_safetensors_file(str(tmp_path / "file.safetensors")).content), tensors)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"[]", b"\x80\x02]q\x00."])
def test_other_files_are_refused(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    for open_file in (open_torch_file, open_safetensors_file):
        with pytest.raises(UnreadableFileError):
            open_file(str(tmp_path / "file"))


def test_no_code_runs(tmp_path):
    class RunsCode:
        def __reduce__(self):
            return (tmp_path / "made").mkdir, ()

    torch.save(RunsCode(), tmp_path / "file")
    with pytest.raises(UnreadableFileError):
        open_torch_file(str(tmp_path / "file"))
    assert not (tmp_path / "made").exists()
