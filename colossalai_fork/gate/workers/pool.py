"""Sets of worker processes that run contract cases on every rank.

A set is a group of gloo processes that live for many cases. The parent sends each case to every rank and collects every
rank's outcome. A rank that hangs, crashes or is killed ends its set: the stacks of the others are collected, the set's
processes are killed (and only those), and the next case gets a fresh set.
"""

import atexit
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import shutil
import sys
import tempfile
import time

from .outcomes import Outcome, RankOutcome, Status
from .worker import DUMP_STACKS, Seat, serve

#: Seconds a case may take on any rank.
DEADLINE = 60.0
#: Seconds the other ranks get to finish once one has failed or died.
GRACE = 5.0
#: Seconds a set may take to start: the imports of torch and colossalai on a busy machine.
START_DEADLINE = 180.0
#: Processes alive at a time; idle sets are closed to stay below.
MOST_PROCESSES = 4

_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # torch._inductor starts a thread and a process pool as it is imported, unless it may compile in one thread only.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # The C library raises this limit as it goes, and then keeps large blocks that were freed; cases that measure memory
    # would see those.
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}


class WorkersFailed(RuntimeError):
    """A set of workers could not be started."""


@contextlib.contextmanager
def _environment(values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_context():
    # Forking from a process that has imported everything once is about a hundred times faster than starting anew.
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["colossalai_fork.gate.workers.preload"])
        return context
    return multiprocessing.get_context("spawn")


class WorkerSet:
    """A process group of workers.

    Args:
        world_size (int): number of processes.
        overlay (bool): whether the overlay is applied in them.
        device (str): "cpu" or "cuda"; on CPU, CUDA is hidden from them.
        context (multiprocessing.context.BaseContext): how to start them.
    """

    def __init__(self, world_size, overlay, device, context):
        self.world_size = world_size
        self.overlay = overlay
        self.device = device
        self.directory = tempfile.mkdtemp(prefix="colossalai-fork-gate-")
        self.threads_at_fork = 1
        self._processes = []
        self._connections = []
        try:
            self._start(context)
        except BaseException:
            self.close()
            raise

    def _start(self, context):
        environment = dict(_ENVIRONMENT)
        if os.path.exists("/sys/class/net/lo"):
            # All ranks are on this machine, whatever its host name resolves to.
            environment["GLOO_SOCKET_IFNAME"] = "lo"
        if self.device == "cpu":
            # ColossalAI picks its accelerator as it is imported, by what it can see.
            environment["CUDA_VISIBLE_DEVICES"] = ""
        seats = [
            Seat(rank, self.world_size, self.directory, self.overlay, self.device, tuple(sys.path))
            for rank in range(self.world_size)
        ]
        with _environment(environment):
            for seat in seats:
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs, seat), daemon=True)
                process.start()
                theirs.close()
                self._processes.append(process)
                self._connections.append(ours)
        self.seats = seats
        deadline = time.monotonic() + START_DEADLINE
        for seat, connection, process in zip(seats, self._connections, self._processes):
            ready = multiprocessing.connection.wait(
                [connection, process.sentinel], max(0.0, deadline - time.monotonic())
            )
            try:
                if connection not in ready:
                    raise EOFError
                self.threads_at_fork = max(self.threads_at_fork, connection.recv() or 1)
            except EOFError:
                raise WorkersFailed(f"rank {seat.rank} did not start: {self._printed(seat)}") from None

    @property
    def process_ids(self):
        """Process ids of the workers, by rank."""
        return [process.pid for process in self._processes]

    @property
    def alive(self):
        """Whether every worker is running."""
        return bool(self._processes) and all(process.is_alive() for process in self._processes)

    def run(self, call, deadline=DEADLINE, grace=GRACE):
        """Run a case on every rank.

        Args:
            call (Call): what to run.
            deadline (float): seconds until a rank counts as hung.
            grace (float): seconds the others get after one rank has failed.

        Returns:
            Outcome: what came of it. The set is closed unless all ranks ended the case at the same place.
        """
        pending = {}
        outcomes = {}
        for rank, connection in enumerate(self._connections):
            try:
                connection.send(call)
                pending[rank] = connection
            except OSError:
                outcomes[rank] = self._death(rank)
        ends = time.monotonic() + deadline
        while pending:
            ready = multiprocessing.connection.wait(
                [*pending.values(), *(self._processes[rank].sentinel for rank in pending)],
                max(0.0, ends - time.monotonic()),
            )
            if not ready:
                outcomes.update(self._hung(pending, deadline))
                break
            for rank, connection in list(pending.items()):
                if connection in ready or self._processes[rank].sentinel in ready:
                    outcomes[rank] = self._receive(rank, connection)
                    del pending[rank]
                    if outcomes[rank].status not in (Status.HELD, Status.NOT_APPLICABLE):
                        ends = min(ends, time.monotonic() + grace)
        outcome = Outcome([outcomes[rank] for rank in range(self.world_size)])
        if not outcome.reusable:
            # A collective of the failed case must not meet one of the next.
            self.close()
        return outcome

    def _receive(self, rank, connection):
        try:
            # A worker may have answered and died before this was read.
            if connection.poll(0):
                return connection.recv()
        except (EOFError, OSError):
            pass
        return self._death(rank)

    def _death(self, rank):
        process = self._processes[rank]
        process.join(GRACE)
        code = process.exitcode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        stacks = self._read(self.seats[rank].stacks_file)
        text = f"the process was {how}" if code is not None and code < 0 else f"the process {how}"
        return RankOutcome(rank, Status.DIED, f"{text}\n{stacks}".strip(), self._printed(self.seats[rank]))

    def _hung(self, pending, deadline):
        sizes = {rank: os.path.getsize(self.seats[rank].stacks_file) for rank in pending}
        for rank in pending:
            if DUMP_STACKS is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._processes[rank].pid, DUMP_STACKS)
        give_up = time.monotonic() + 2.0
        for rank in pending:
            while os.path.getsize(self.seats[rank].stacks_file) == sizes[rank] and time.monotonic() < give_up:
                time.sleep(0.02)
        # The file grows while it is written.
        time.sleep(0.1)
        for rank in pending:
            stacks = self._read(self.seats[rank].stacks_file)
            text = f"not finished when time was up ({deadline:g} s for a case, less once another rank has failed)"
            yield rank, RankOutcome(rank, Status.HUNG, f"{text}; it was here:\n{stacks}", "")

    def _read(self, path):
        try:
            with open(path, errors="replace") as file:
                return file.read()[-8000:]
        except OSError:
            return ""

    def _printed(self, seat):
        return self._read(seat.output_file)[-4000:]

    def close(self):
        """End the set's processes, and only those."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.send(None)
            connection.close()
        for process in self._processes:
            process.join(0.5)
            if process.is_alive():
                process.kill()
            process.join(5.0)
        self._processes, self._connections = [], []
        shutil.rmtree(self.directory, ignore_errors=True)


class WorkerPool:
    """The sets of a process that runs cases, by what they have to be.

    Args:
        most_processes (int): workers alive at a time; a set that is not in use is closed to make room.
    """

    def __init__(self, most_processes=MOST_PROCESSES):
        self.most_processes = most_processes
        self._context = None
        self._sets = {}
        self._owner = os.getpid()
        atexit.register(self.close)

    def get(self, world_size, overlay, name="", device="cpu"):
        """Return a running set.

        Args:
            world_size (int): number of processes.
            overlay (bool): whether the overlay is applied in them.
            name (str): cases that must not share processes with others have a name of their own.
            device (str): "cpu" or "cuda".

        Returns:
            WorkerSet: the set.

        Raises:
            WorkersFailed: the set could not be started.
        """
        key = (world_size, overlay, name, device)
        found = self._sets.pop(key, None)
        if found is not None and not found.alive:
            found.close()
            found = None
        if found is None:
            while (
                self._sets and world_size + sum(each.world_size for each in self._sets.values()) > self.most_processes
            ):
                self._sets.pop(next(iter(self._sets))).close()
            found = self._start(world_size, overlay, device)
        # Put last: the first ones are those not used for longest.
        self._sets[key] = found
        return found

    def _start(self, world_size, overlay, device):
        if device != "cpu":
            # CUDA does not survive a fork.
            return WorkerSet(world_size, overlay, device, multiprocessing.get_context("spawn"))
        if self._context is None:
            self._context = _start_context()
        started = WorkerSet(world_size, overlay, device, self._context)
        if started.threads_at_fork > 1:
            # Something imported starts threads here; a fork would copy their locks without them.
            started.close()
            self._context = multiprocessing.get_context("spawn")
            started = WorkerSet(world_size, overlay, device, self._context)
        return started

    def close(self):
        """End all sets. Does nothing in a process forked from the one that made the pool."""
        if os.getpid() != self._owner:
            return
        while self._sets:
            self._sets.popitem()[1].close()
