"""``inspect``, ``verify`` and ``manifest`` on what each class saves, and loading with full verification."""

import contextlib
import os

import torch
from click.testing import CliRunner

from colossalai_fork import cli
from colossalai_fork.checkpoint_io.optimizer_restore.files.contents import VARIABLE
from colossalai_fork.gate.contract.base import case
from colossalai_fork.gate.contract.comparison import differences, look_at
from colossalai_fork.gate.suite import (
    test_gemini,
    test_general,
    test_hybrid_parallel,
    test_low_level_zero,
    test_moe,
    test_torch_ddp,
    test_torch_fsdp,
)


def run(*arguments):
    result = CliRunner().invoke(cli.main, list(arguments))
    return result.exit_code, result.output


def flip_a_bit(path):
    """Flip a bit of some parameter's largest tensor. Return the file's name, the parameter's id and the key."""
    name = next(name for name in sorted(os.listdir(path)) if name.endswith(".bin") and "group" not in name)
    states = torch.load(os.path.join(path, name), weights_only=True)
    for param_id, state in states.items():
        for key, value in state.items():
            found = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if torch.is_tensor(value) else b""
            with open(os.path.join(path, name), "rb") as file:
                data = bytearray(file.read())
            if len(found) > 8 and data.count(found) == 1:
                data[data.index(found)] ^= 16
                with open(os.path.join(path, name), "wb") as file:
                    file.write(data)
                return name, param_id, key
    raise AssertionError("no tensor is there once only")


class VerifyCases:
    """Cases that every class runs."""

    @case(2, deadline=120.0)
    def test_what_it_saves_is_sound_and_one_bit_is_missed(self):
        source, subject = self.trained(1), self.trained(3, self.recipe().with_rates(3), steps=3)
        path = self.save(source)
        self.everyone(None)
        problems = []
        if self.rank == 0:
            for command in (("inspect",), ("verify",), ("verify", "--full"), ("manifest",), ("verify", "--full")):
                code, output = run(*command, path)
                problems += [f"{command} ends with {code}: {output}"] if code else []
        self.verdict(sum(self.everyone(problems), []))
        with self.verifying():
            error = self.load(subject, path)
            self.verdict([f"it is refused: {error}"] if error else [])
            self.everyone(None)
            before = look_at(subject.inner)
            flipped = flip_a_bit(path) if self.rank == 0 else None
            name, param_id, key = next(filter(None, self.everyone(flipped)))
            error = self.load(subject, path)
        told = [name, f"parameter id {param_id}, state '{key}'", "checksum", "SHA-256"]
        problems = [f"{text} is not in {error}" for text in told if text not in str(error)]
        if self.rank == 0:
            code, output = run("verify", "--full", path)
            problems += [f"verify ends with {code}"] if code != 1 else []
            problems += [f"{text} is not in {output}" for text in told if text not in output]
        self.verdict(problems + differences(before, look_at(subject.inner), ""))

    @contextlib.contextmanager
    def verifying(self):
        os.environ.update([VARIABLE])
        try:
            yield
        finally:
            del os.environ[VARIABLE[0]]


def only_verifying(configuration):
    """Leave out the cases that the configuration runs in its own module."""
    for name in dir(configuration):
        if name.startswith("test") and name not in vars(VerifyCases):
            setattr(configuration, name, None)
    return configuration


@only_verifying
class TestGeneral(VerifyCases, test_general.TestGeneral):
    """One process."""


@only_verifying
class TestTorchDDP(VerifyCases, test_torch_ddp.TestTorchDDP):
    """Two processes."""


@only_verifying
class TestZero(VerifyCases, test_low_level_zero.TestZeroStage1):
    """Two processes."""


@only_verifying
class TestHybridPipeline(VerifyCases, test_hybrid_parallel.TestPipeline):
    """A process for each of two stages."""


@only_verifying
class TestExpertParallel(VerifyCases, test_moe.TestExpertParallel):
    """Two processes with half of the experts each."""


@only_verifying
class TestGemini(VerifyCases, test_gemini.TestGemini):
    """Two processes."""


@only_verifying
class TestTorchFSDP(VerifyCases, test_torch_fsdp.TestTorchFSDP):
    """Two processes."""
