"""What a user gets who installs the package."""

import configparser
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    # A copy, since setuptools builds inside the source tree and would take up what an earlier build left there.
    source = tmp_path_factory.mktemp("source")
    for name in ("colossalai_fork", "patches"):
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.cfg"):
        shutil.copy(PROJECT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", source, source]
    subprocess.run(command, check=True, capture_output=True)
    (file,) = source.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


def files(folder, prefix):
    return {
        f"{prefix}/{file.relative_to(PROJECT / folder).as_posix()}"
        for file in (PROJECT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_has_every_file(wheel):
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files("colossalai_fork", "colossalai_fork") | files("patches", "colossalai_fork/patchset/series")


def test_the_wheel_has_the_command_and_the_license(wheel):
    (entry_points,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    parser = configparser.ConfigParser()
    parser.read_string(wheel.read(entry_points).decode())
    assert parser["console_scripts"]["colossalai-fork"] == "colossalai_fork.cli:main"
    assert any(name.endswith("/LICENSE") for name in wheel.namelist())


def test_the_metadata_says_what_the_code_needs(wheel):
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    lines = wheel.read(metadata).decode().split("\n\n")[0].splitlines()
    required = {
        line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line
    }
    assert required == {"click", "colossalai>=0.5.0", "numpy", "rich", "safetensors", "torch>=2.2"}
    assert "Requires-Python: >=3.10" in lines
