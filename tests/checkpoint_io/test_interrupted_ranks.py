"""Ranks that are interrupted, killed, or read a file that is cut short meanwhile: the others learn of it, and nothing is mixed."""

import contextlib
import copy
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import torch

from colossalai_fork.checkpoint_io.optimizer_restore import restore as restoring
from colossalai_fork.checkpoint_io.optimizer_restore.agreement import LOADED, VALIDATED
from colossalai_fork.checkpoint_io.optimizer_restore.destination import Destination
from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointLoadError
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import open_unsharded
from colossalai_fork.gate.contract.comparison import differences
from colossalai_fork.gate.workers.outcomes import Status
from colossalai_fork.gate.workers.pool import WorkerPool
from colossalai_fork.gate.workers.worker import Call


def trained(seed, steps=1):
    torch.manual_seed(seed)
    params = [torch.nn.Parameter(torch.randn(1000)) for _ in range(3)]
    optimizer = torch.optim.Adam(params)
    for _ in range(steps):
        for param in params:
            param.grad = torch.randn(1000)
        optimizer.step()
    return optimizer


def load(optimizer, path):
    restoring.restore(Destination(optimizer, torch.distributed.group.WORLD), lambda: open_unsharded(path))


@contextlib.contextmanager
def replaced(name, function):
    original = getattr(restoring, name)
    setattr(restoring, name, lambda *arguments, **options: function(original, *arguments, **options))
    try:
        yield
    finally:
        setattr(restoring, name, original)


class OnRanks:
    """Runs on two ranks, each with files of its own."""

    def files(self):
        source = trained(seed=0, steps=2)
        path = os.path.join(self.directory, f"optim-{self.rank}.bin")
        torch.save(source.state_dict(), path)
        return source.state_dict(), path

    def fails(self, optimizer, path, text, interrupted=False):
        with pytest.raises(KeyboardInterrupt if interrupted else CheckpointLoadError) as caught:
            load(optimizer, path)
        if not interrupted:
            assert text in str(caught.value), str(caught.value)
        return caught.value

    def interrupt_in_validation(self):
        """Rank 0 is interrupted while it validates, and tries again."""
        saved, path = self.files()
        optimizer = trained(seed=1)
        before = copy.deepcopy(optimizer.state_dict())

        def interrupted(original, *arguments):
            raise KeyboardInterrupt

        with replaced("validate", interrupted) if self.rank == 0 else contextlib.nullcontext():
            self.fails(optimizer, path, "rank 0: KeyboardInterrupt", interrupted=self.rank == 0)
        assert differences(before, optimizer.state_dict()) == []
        load(optimizer, path)
        assert differences(saved, optimizer.state_dict()) == []

    def interrupt_while_loading(self):
        """Rank 1 is interrupted when the old state is gone."""
        saved, path = self.files()
        optimizer = trained(seed=1)
        if self.rank == 1:
            optimizer.__class__ = Interrupted
        self.fails(optimizer, path, "rank 1: KeyboardInterrupt", interrupted=self.rank == 1)
        assert not optimizer.state
        optimizer.__class__ = torch.optim.Adam
        load(optimizer, path)
        assert differences(saved, optimizer.state_dict()) == []

    def interrupt_between_agreements(self):
        """Rank 0 is interrupted when all have validated, and begins again while rank 1 goes on."""
        saved, path = self.files()
        optimizer = trained(seed=1)
        before = copy.deepcopy(optimizer.state_dict())

        def agree(original, problems, point, *arguments):
            result = original(problems, point, *arguments)
            if point == VALIDATED:
                raise KeyboardInterrupt
            return result

        with replaced("agree", agree) if self.rank == 0 else contextlib.nullcontext():
            if self.rank == 0:
                self.fails(optimizer, path, "", interrupted=True)
                assert differences(before, optimizer.state_dict()) == []
        error = self.fails(optimizer, path, "different points of loading")
        if self.rank == 0:
            assert "unchanged" in str(error) and differences(before, optimizer.state_dict()) == []
        else:
            assert "empty" in str(error) and not optimizer.state
        load(optimizer, path)
        assert differences(saved, optimizer.state_dict()) == []

    def file_cut_short_by_another_process(self):
        """Another process cuts rank 1's file short between validation and reading."""
        saved, path = self.files()
        optimizer = trained(seed=1)

        def agree(original, problems, point, *arguments):
            result = original(problems, point, *arguments)
            if point == VALIDATED and self.rank == 1:
                cut = f"import os; os.truncate({path!r}, {os.path.getsize(path) // 2})"
                subprocess.run([sys.executable, "-c", cut], check=True)
            return result

        with replaced("agree", agree):
            error = self.fails(optimizer, path, "rank 1: ")
        assert os.path.basename(path).replace("0", "1") in str(error) and "empty" in str(error)
        assert not optimizer.state
        _, path = self.files()
        load(optimizer, path)
        assert differences(saved, optimizer.state_dict()) == []

    for method in (
        interrupt_in_validation,
        interrupt_while_loading,
        interrupt_between_agreements,
        file_cut_short_by_another_process,
    ):
        method.run_here = method


class Interrupted(torch.optim.Adam):
    """Is interrupted when native code has loaded it."""

    def __setstate__(self, state):
        super().__setstate__(state)
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool()
    yield pool
    pool.close()


@pytest.mark.parametrize(
    "method",
    [
        "interrupt_in_validation",
        "interrupt_while_loading",
        "interrupt_between_agreements",
        "file_cut_short_by_another_process",
    ],
)
def test_two_ranks(tmp_path, pool, method):
    outcome = pool.get(2, overlay=False).run(Call(__name__, __file__, "OnRanks", method, {}, str(tmp_path)))
    assert outcome.status is Status.HELD, outcome.describe()


KILLED = """
    import copy, datetime, os, signal, sys, time
    import torch, torch.distributed as dist
    from test_interrupted_ranks import load, open_unsharded, restoring, trained
    from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointLoadError
    from colossalai_fork.gate.contract.comparison import differences

    rank, point, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    dist.init_process_group(
        "gloo", init_method="file://" + directory + "/rendezvous", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=30 if point else 3),
    )
    path = f"{directory}/optim-{rank}.bin"
    torch.save(trained(seed=0, steps=2).state_dict(), path)
    optimizer = trained(seed=1)
    before = copy.deepcopy(optimizer.state_dict())
    agree = restoring.agree

    def killed(problems, at, *arguments):
        if rank == 1 and at == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return agree(problems, at, *arguments)

    restoring.agree = killed
    if rank == 1 and point == 0:
        time.sleep(10)
        sys.exit()
    try:
        load(optimizer, path)
    except CheckpointLoadError as error:
        changed = differences(before, optimizer.state_dict())
        print("refused", "unchanged" if not changed else "empty" if not optimizer.state else "mixed")
        print(error)
"""


def survivor_says(directory, point):
    """Start two ranks, of which the second ends at a point of loading, or never loads if that is 0."""
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [
        subprocess.Popen([*command, str(rank), str(point), str(directory)], env=environment, **output)
        for rank in range(2)
    ]
    try:
        said, _ = ranks[0].communicate(timeout=120)
        assert ranks[1].wait(timeout=60) == (-signal.SIGKILL if point else 0)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return said


@pytest.mark.parametrize("point, outcome", [(VALIDATED, "unchanged"), (LOADED, "empty")])
def test_a_rank_that_is_killed(tmp_path, point, outcome):
    said = survivor_says(tmp_path, point)
    assert f"refused {outcome}" in said and "could not agree" in said, said
    assert f"state is {outcome}" in said or f"optimizer is {outcome}" in said, said


def test_a_rank_that_does_not_load(tmp_path):
    said = survivor_says(tmp_path, 0)
    assert "refused unchanged" in said and "All ranks of the group must load together" in said, said
