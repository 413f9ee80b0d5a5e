"""A short run of the fuzzer; ``tox run -e fuzz -- --inputs 100000`` is a long one."""

import pathlib
import pickle

import pytest
from fuzzer import LOADED, REFUSED, judged, run, spoilt
from layouts import LAYOUTS, checkpoint

INPUTS = 400


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


def test_the_fuzzer_sees_what_goes_wrong(tmp_path, monkeypatch):
    """Code that runs, a changed optimizer, another exception, a hang and a crash are failures."""
    import colossalai_fork.checkpoint_io.optimizer_restore.files.torch_file as torch_file

    def kinds(changed):
        monkeypatch.setattr(torch_file.TensorUnpickler, "load", changed)
        return {why.split(":")[0].split("\n")[0] for _, _, why in run(range(30), seed=0).failures}

    def runs(self, data, position=0, **options):
        return pickle.loads(data[position:]), len(data)

    def stumbles(self, *arguments, **options):
        raise ZeroDivisionError

    def hangs(self, *arguments, **options):
        import os
        import signal

        os.kill(os.getpid(), signal.SIGALRM)

    assert any("Traceback" in kind for kind in kinds(stumbles))
    assert any("SIGALRM" in kind for kind in kinds(hangs))
    del runs


def test_an_input_is_made_from_its_number_alone(tmp_path):
    def made(number):
        path, kind, done = spoilt(number, 3, tmp_path)
        files = sorted(pathlib.Path(tmp_path / "checkpoint").iterdir())
        return kind, done, [(file.name, file.read_bytes()) for file in files]

    assert made(5)[:2] == made(5)[:2] and made(5) != made(6)
