"""A short run of the fuzzer; ``tox run -e fuzz -- --inputs 100000`` is a long one."""

import os
import pathlib
import pickle
import signal
import time

import pytest
from fuzzer import LOADED, REFUSED, judged, run, spoilt
from layouts import LAYOUTS, checkpoint

from colossalai_fork.checkpoint_io import GeneralCheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointLoadError
from colossalai_fork.checkpoint_io.optimizer_restore.files.pickled_tensors import TensorUnpickler
from colossalai_fork.cli import inspect

INPUTS = 300


def test_spoilt_checkpoints_are_refused_or_loaded_as_natively():
    findings = run(range(INPUTS), seed=0)
    assert findings.failures == []
    # Neither are they spoilt beyond what the loaders look at, nor left as they were.
    assert findings.counts[REFUSED] > INPUTS / 2 and findings.counts[LOADED] > INPUTS / 50


@pytest.mark.parametrize("kind", ["adam", "sgd", "flat"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_checkpoint_that_is_not_spoilt_is_loaded(tmp_path, layout, kind):
    for name, data in checkpoint(layout, kind, 1).items():
        (tmp_path / name).write_bytes(data)
    path = tmp_path if len(list(tmp_path.iterdir())) > 1 else next(tmp_path.iterdir())
    assert judged(path, kind, tmp_path) == (LOADED, "")


def _stumbles(*arguments, **options):
    raise ZeroDivisionError


def _crashes(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def _hangs(*arguments, **options):
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    time.sleep(60)


def _takes_memory(*arguments, **options):
    return bytearray(2 << 30)


def _runs_code(self, data, position=0, **options):
    return pickle.loads(data[position:]), len(data)


def _loads_something_else(self, *arguments, original=TensorUnpickler.load, **options):
    content, end = original(self, *arguments, **options)
    if isinstance(content, list):
        content[0]["lr"] = 123.0
    return content, end


@pytest.mark.parametrize(
    "fault, said",
    [
        (_stumbles, "ZeroDivisionError"),
        (_crashes, "SIGKILL"),
        (_hangs, "SIGALRM"),
        (_takes_memory, "MemoryError"),
        (_runs_code, "code in the file has run"),
        (_loads_something_else, "not what native loading gives"),
    ],
)
def test_the_fuzzer_sees_a_fault(monkeypatch, fault, said):
    monkeypatch.setattr(TensorUnpickler, "load", fault)
    failures = run(range(60 if fault in (_runs_code, _loads_something_else) else 8), seed=0).failures
    assert any(said in why for _, _, why in failures), failures


def test_the_fuzzer_sees_an_optimizer_that_is_changed(monkeypatch):
    original = GeneralCheckpointIO.load_optimizer

    def empties(self, optimizer, *arguments, **options):
        try:
            return original(self, optimizer, *arguments, **options)
        except CheckpointLoadError:
            optimizer.state.clear()
            raise

    monkeypatch.setattr(GeneralCheckpointIO, "load_optimizer", empties)
    assert any(why.startswith("changed") for _, _, why in run(range(8), seed=0).failures)


def test_the_fuzzer_sees_an_inspection_that_fails(monkeypatch):
    monkeypatch.setattr(inspect, "_groups", _stumbles)
    assert any(why.startswith("inspect: Traceback") for _, _, why in run(range(8), seed=0).failures)


def test_an_input_is_made_from_its_number_alone(tmp_path):
    def made(number):
        path, kind, done = spoilt(number, 3, tmp_path)
        files = sorted(pathlib.Path(tmp_path / "checkpoint").iterdir())
        return kind, done, [(file.name, file.read_bytes()) for file in files]

    assert made(5)[:2] == made(5)[:2] and made(5) != made(6)
