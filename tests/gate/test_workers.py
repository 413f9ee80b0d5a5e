"""The gate's worker processes: whatever happens to a rank is reported as the outcome of the case that ran."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest
import torch.distributed

from colossalai_fork.gate.workers.outcomes import ContractViolation, NotApplicable, Status
from colossalai_fork.gate.workers.pool import WorkerPool
from colossalai_fork.gate.workers.worker import Call


def here(method):
    """Mark a method as one that workers run."""
    method.run_here = method
    return method


class Behaviours:
    """What can happen on the ranks of a case."""

    @here
    def meets(self):
        ranks = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(ranks, self.rank)
        assert ranks == list(range(len(ranks)))

    @here
    def violates(self):
        print("said before it failed")
        raise ContractViolation("a promise was broken")

    @here
    def does_not_apply(self):
        raise NotApplicable("because of this")

    @here
    def is_broken(self):
        raise KeyError("in the case itself")

    @here
    def first_rank_hangs(self):
        if self.rank == 0:
            torch.distributed.barrier()

    @here
    def last_rank_violates_and_the_first_waits(self):
        if self.rank == 0:
            torch.distributed.barrier()
        raise ContractViolation("before the barrier")

    @here
    def last_rank_is_killed(self):
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.barrier()

    @here
    def last_rank_crashes(self):
        if self.rank == 1:
            ctypes.string_at(0)
        torch.distributed.barrier()

    @here
    def destroys_groups_right_after_using_them(self):
        for _ in range(20):
            group = torch.distributed.new_group()
            gathered = [torch.empty(4) for _ in range(torch.distributed.get_world_size())]
            work = torch.distributed.all_gather(gathered, torch.ones(4), group=group, async_op=True)
            work.wait()
            del work, gathered
            torch.distributed.destroy_process_group(group)
            del group

    @here
    def last_rank_exits(self):
        if self.rank == 1:
            os._exit(3)
        torch.distributed.barrier()


@pytest.fixture(scope="module")
def pool():
    """Worker processes of this module."""
    pool = WorkerPool()
    yield pool
    pool.close()


def run(pool, method, tmp_path, world_size=2, deadline=30.0):
    """Run a behaviour."""
    call = Call(__name__, __file__, "Behaviours", method, {}, str(tmp_path))
    return pool.get(world_size, overlay=False).run(call, deadline, grace=1.0)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_meet(pool, tmp_path, world_size):
    assert run(pool, "meets", tmp_path, world_size).status is Status.HELD


def test_violation_is_described_with_what_was_printed(pool, tmp_path):
    outcome = run(pool, "violates", tmp_path)
    assert outcome.status is Status.VIOLATED
    assert "a promise was broken" in outcome.describe()
    assert "said before it failed" in outcome.describe()
    assert run(pool, "meets", tmp_path).status is Status.HELD


def test_case_that_does_not_apply(pool, tmp_path):
    outcome = run(pool, "does_not_apply", tmp_path)
    assert outcome.status is Status.NOT_APPLICABLE
    assert "because of this" in outcome.describe()


def test_error_of_the_case_itself_is_no_violation(pool, tmp_path):
    assert run(pool, "is_broken", tmp_path).status is Status.BROKEN
    assert run(pool, "meets", tmp_path).status is Status.HELD


def test_hang_is_a_violation_and_shows_where(pool, tmp_path):
    outcome = run(pool, "first_rank_hangs", tmp_path, deadline=2.0)
    assert outcome.status is Status.VIOLATED
    assert [rank.status for rank in outcome.ranks] == [Status.HUNG, Status.HELD]
    assert "first_rank_hangs" in outcome.ranks[0].text
    assert run(pool, "meets", tmp_path).status is Status.HELD


def test_rank_that_waits_for_one_that_failed(pool, tmp_path):
    start = time.monotonic()
    outcome = run(pool, "last_rank_violates_and_the_first_waits", tmp_path)
    assert outcome.status is Status.VIOLATED
    assert time.monotonic() - start < 20
    assert "before the barrier" in outcome.describe()


def test_groups_may_be_destroyed_right_after_use(pool, tmp_path):
    # Without the workers keeping them, torch 2.5 hangs in a few of a hundred such groups.
    for _ in range(5):
        outcome = run(pool, "destroys_groups_right_after_using_them", tmp_path)
        assert outcome.status is Status.HELD, outcome.describe()


@pytest.mark.parametrize(
    "method, reason",
    [
        ("last_rank_is_killed", "killed by signal 9"),
        ("last_rank_crashes", "killed by signal 11"),
        ("last_rank_exits", "ended with exit code 3"),
    ],
)
def test_death_of_a_rank_is_a_violation(pool, tmp_path, method, reason):
    outcome = run(pool, method, tmp_path)
    assert outcome.status is Status.VIOLATED
    assert outcome.ranks[1].status is Status.DIED
    assert reason in outcome.ranks[1].text
    assert run(pool, "meets", tmp_path).status is Status.HELD


def test_crash_shows_the_stack(pool, tmp_path):
    outcome = run(pool, "last_rank_crashes", tmp_path)
    assert "string_at" in outcome.ranks[1].text


def test_idle_sets_make_room(tmp_path):
    pool = WorkerPool(most_processes=2)
    try:
        first = pool.get(1, overlay=False)
        second = pool.get(2, overlay=False)
        assert not first.alive
        assert second.alive
    finally:
        pool.close()


_PARENT = """
import os, signal
from colossalai_fork.gate.workers.pool import WorkerPool

if __name__ == "__main__":
    workers = WorkerPool().get(2, overlay=False)
    print(*workers.process_ids, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for the processes in /proc")
def test_workers_die_with_their_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, timeout=300, env=environment)
    workers = [int(word) for word in done.stdout.split()]
    assert len(workers) == 2
    give_up = time.monotonic() + 30
    while any(_running(worker) for worker in workers) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert not any(_running(worker) for worker in workers)


def _running(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
