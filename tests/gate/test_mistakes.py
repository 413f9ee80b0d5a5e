"""Mistakes of authors end in no judgement, with the cause first: never in "holds", and never in "violated"."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]

#: A correct class of one's own, and its one case; the mistakes are put into it.
MODULE = """
import sys
from colossalai_fork.gate.configurations import GeneralContract

class TestOwn(GeneralContract):
    class_under_test = "OwnCheckpointIO"
    layouts = ("torch-one-file",)

    def checkpoint_io(self):
        from own import OwnCheckpointIO

        return OwnCheckpointIO()

for name in dir(TestOwn):
    if name.startswith("test_") and name not in ("test_full_checkpoint", "test_other_groups"):
        setattr(TestOwn, name, None)
"""

#: The module beside it.
OWN = """
import os, signal
from colossalai.checkpoint_io import GeneralCheckpointIO

class OwnCheckpointIO(GeneralCheckpointIO):
    pass
"""

#: Name of the mistake: what is replaced, by what, and the beginning of the cause.
MISTAKES = {
    "typo in a layout": (
        '("torch-one-file",)',
        '("torch-onefile",)',
        "TestOwn: layouts names 'torch-onefile', which is none of torch-sharded, torch-one-file, safetensors-sharded, "
        "safetensors-one-file (did you mean torch-one-file?)",
    ),
    "no layouts": ('("torch-one-file",)', "()", "TestOwn: layouts is empty"),
    "misspelt attribute": ("    layouts = (", "    layout = (", "TestOwn: layout means nothing to the contract"),
    "no checkpoint_io": (
        "def checkpoint_io(self)",
        "def make_checkpoint_io(self)",
        "TestOwn.checkpoint_io() made a GeneralCheckpointIO, but class_under_test is 'OwnCheckpointIO'",
    ),
    "wrong class named": (
        'class_under_test = "OwnCheckpointIO"',
        'class_under_test = "OtherCheckpointIO"',
        "TestOwn.checkpoint_io() made a OwnCheckpointIO, but class_under_test is 'OtherCheckpointIO'",
    ),
    "import error in the module": ("import sys", "import no_such_module", "ModuleNotFoundError"),
    "import error in a case": (
        "        from own import",
        "        import no_such_module\n        from own import",
        "TestOwn.checkpoint_io() failed: ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "wrong signature": (
        "    pass",
        "    def load_unsharded_optimizer(self, optimizer): pass",
        "OwnCheckpointIO.load_unsharded_optimizer(self, optimizer) has a wrong signature",
    ),
    "missing argument": (
        "    pass",
        "    def __init__(self, place): pass",
        "TestOwn.checkpoint_io() failed: TypeError:",
    ),
    "exit inside a case": (
        "    def checkpoint_io(self)",
        "    def build(self, seed=1, recipe=None): sys.exit(3)\n\n    def checkpoint_io(self)",
        "SystemExit: 3 (in build,",
    ),
    "configuration that cannot be built": (
        "    def checkpoint_io(self)",
        "    def build(self, seed=1, recipe=None): raise KeyError('no such model')\n\n    def checkpoint_io(self)",
        "KeyError: 'no such model' (in build,",
    ),
    "essential case declared not applicable": (
        "    layouts =",
        '    not_applicable = {"test_other_groups": "no groups"}\n    layouts =',
        "TestOwn: not_applicable names test_other_groups, which every class has to hold",
    ),
}


def gate(directory, *arguments, start=("-m", "colossalai_fork"), **environment):
    done = subprocess.run(
        [
            sys.executable,
            *start,
            "gate",
            *map(str, arguments),
            "--jobs",
            "1",
            "--report",
            "report.json",
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "COLUMNS": "80", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    report = pathlib.Path(directory, "report.json")
    return done, json.loads(report.read_text()) if report.exists() else None


def module(directory, old="", new="", keep_all=False):
    text = MODULE if not keep_all else MODULE[: MODULE.index("for name in")]
    assert old in text or old in OWN
    (directory / "test_own.py").write_text(text.replace(old, new, 1) if old else text)
    (directory / "own.py").write_text(OWN.replace(old, new, 1) if old else OWN)
    return directory / "test_own.py"


# What was set to None is essential, so the class is called incomplete where the mistake does not come first.
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_no_judgement(name, tmp_path):
    old, new, cause = MISTAKES[name]
    done, report = gate(tmp_path, module(tmp_path, old, new, keep_all=True), "--processes", "1")
    assert done.returncode == 2, done.stdout
    assert report["verdict"] == "no judgement" and report["because"][0].startswith(cause), report["because"]
    assert "contract holds" not in done.stdout and "is violated" not in done.stdout


def test_essential_cases_cannot_be_left_out(tmp_path):
    done, report = gate(tmp_path, module(tmp_path))
    assert (
        done.returncode == 2 and "no configuration of OwnCheckpointIO runs test_save_load_and_train_on" in done.stdout
    )


def test_without_a_mistake_there_is_a_judgement(tmp_path):
    done, report = gate(tmp_path, module(tmp_path, keep_all=True))
    assert done.returncode == 0 and report["verdict"] == "the contract holds", done.stdout
    assert all(isinstance(each["seconds"], float) for each in report["cases"])


def test_a_class_that_kills_its_process_is_violated(tmp_path):
    kills = "    def load_unsharded_optimizer(self, optimizer, checkpoint, low_cpu_mem_mode=True, num_threads=1):\n"
    kills += "        os.kill(os.getpid(), signal.SIGKILL)"
    done, report = gate(tmp_path, module(tmp_path, "    pass", kills, keep_all=True))
    assert done.returncode == 1, done.stdout
    assert "the process was killed by SIGKILL" in done.stdout
    broken = [each for each in report["cases"] if each["status"] == "violated"]
    assert broken and all(each["reason"] and each["findings"] for each in broken)


def test_modules_that_lie_around_take_no_places(tmp_path):
    file = module(tmp_path, keep_all=True)
    around = tmp_path / "around"
    around.mkdir()
    for name in ("random", "queue", "json", "colossalai_fork"):
        (around / f"{name}.py").write_text("raise SystemExit('this is not what was meant')\n")
    # As the installed command does it: Python itself takes what ``-m`` names from where it is run.
    script = tmp_path / "elsewhere" / "colossalai-fork"
    script.parent.mkdir()
    script.write_text("from colossalai_fork.cli import main\nif __name__ == '__main__':\n    main()\n")
    done, report = gate(around, file, start=[script])
    assert done.returncode == 0, done.stdout


def test_a_full_disk_is_no_judgement(tmp_path):
    # Not below tmp_path, whose name may be too long for sockets.
    full = pathlib.Path(tempfile.mkdtemp(prefix="full-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", full], capture_output=True)
    if mounted.returncode:
        pytest.skip("may not mount a small file system")
    try:
        file = module(tmp_path, keep_all=True)
        done, report = gate(tmp_path, file, TMPDIR=str(full))
        assert done.returncode == 2 and "No space left on device" in report["because"][0], done.stdout
    finally:
        subprocess.run(["umount", "-l", full], check=True)
        full.rmdir()


def test_a_temporary_directory_with_a_long_name_is_no_judgement(tmp_path):
    long = tmp_path / ("long" * 20)
    long.mkdir()
    done, _ = gate(tmp_path, module(tmp_path, keep_all=True), TMPDIR=str(long))
    assert done.returncode == 2 and "too long for sockets" in done.stdout


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for the processes in /proc")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process(end, tmp_path):
    mark = f"gate-test-{os.getpid()}-{end}"
    with open(tmp_path / "said.txt", "w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "colossalai_fork", "gate", "--classes", "general,torchddp"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "MARK_OF_THE_RUN": mark},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        give_up = time.monotonic() + 120
        while "1 of" not in (tmp_path / "said.txt").read_text().replace("0 of", "", 1) and time.monotonic() < give_up:
            if len((tmp_path / "said.txt").read_text().splitlines()) > 3:
                break
            time.sleep(0.2)
        os.kill(process.pid, end)
        code = process.wait(120)
    assert code == (2 if end != signal.SIGKILL else -signal.SIGKILL), (tmp_path / "said.txt").read_text()
    if end != signal.SIGKILL:
        assert "interrupted after" in (tmp_path / "said.txt").read_text()
    give_up = time.monotonic() + 60
    while _marked(mark) and time.monotonic() < give_up:
        time.sleep(0.2)
    assert not _marked(mark)


def _marked(mark):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read():
                        found.append(int(name))
            except OSError:
                pass
    return found
