"""Sets of worker processes that run contract cases on every rank.

A set is a group of gloo processes that live for many cases. The parent sends each case to every rank and collects every
rank's outcome. A rank that hangs, crashes or is killed ends its set: the stacks of the others are collected, the set's
processes are killed (and only those), and the next case gets a fresh set.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import tempfile
import time
from typing import Iterator

from .outcomes import Outcome, RankOutcome, Status
from .worker import DUMP_STACKS, Call, Seat, serve

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
    # From Python 3.11 on: modules in the working directory are nobody's.
    "PYTHONSAFEPATH": "1",
}


class WorkersFailed(RuntimeError):
    """A set of workers could not be started; the first line of the text says why."""


@contextlib.contextmanager
def _in_directory(path: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
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


def _start_context() -> multiprocessing.context.BaseContext:
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

    def __init__(
        self, world_size: int, overlay: bool, device: str, context: multiprocessing.context.BaseContext
    ) -> None:
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

    def _start(self, context: multiprocessing.context.BaseContext) -> None:
        environment = dict(_ENVIRONMENT)
        if os.path.exists("/sys/class/net/lo"):
            # All ranks are on this machine, whatever its host name resolves to.
            environment["GLOO_SOCKET_IFNAME"] = "lo"
        if self.device == "cpu":
            # ColossalAI picks its accelerator as it is imported, by what it can see.
            environment["CUDA_VISIBLE_DEVICES"] = ""
        here = os.getcwd()
        search_path = tuple(os.path.abspath(each) if each else here for each in sys.path)
        seats = [
            Seat(rank, self.world_size, self.directory, self.overlay, self.device, search_path, here)
            for rank in range(self.world_size)
        ]
        # A new interpreter looks for modules where it starts, before anything tells it not to: not where anyone has some.
        with _environment(environment), _in_directory(self.directory):
            for seat in seats:
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs, seat), daemon=True)
                process.start()
                theirs.close()
                self._processes.append(process)
                self._connections.append(ours)
        self.seats = seats
        deadline = time.monotonic() + START_DEADLINE
        for rank in range(self.world_size):
            self.threads_at_fork = max(self.threads_at_fork, self._said(rank, deadline) or 1)
        if self.threads_at_fork == 1:
            for rank in range(self.world_size):
                self._said(rank, deadline)

    def _said(self, rank: int, deadline: float) -> int | str | None:
        connection, process = self._connections[rank], self._processes[rank]
        ready = multiprocessing.connection.wait([connection, process.sentinel], max(0.0, deadline - time.monotonic()))
        try:
            if connection not in ready:
                raise EOFError
            return connection.recv()
        except EOFError:
            raise WorkersFailed(self._why_not_started(self.seats[rank], process)) from None

    def _why_not_started(self, seat: Seat, process: multiprocessing.process.BaseProcess) -> str:
        printed = self._printed(seat).strip()
        process.join(GRACE)
        if process.exitcode is None:
            cause = f"it was not ready after {START_DEADLINE:g} s"
        else:
            cause = (printed.splitlines() or [_ending(process.exitcode)])[-1]
        context = f"\n--- printed there ---\n{printed}" if printed else ""
        return f"rank {seat.rank} of {seat.world_size} did not start: {cause}{context}"

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the workers, by rank."""
        return [process.pid for process in self._processes]

    @property
    def alive(self) -> bool:
        """Whether every worker is running."""
        return bool(self._processes) and all(process.is_alive() for process in self._processes)

    def run(self, call: Call, deadline: float = DEADLINE, grace: float = GRACE) -> Outcome:
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

    def _receive(self, rank: int, connection: multiprocessing.connection.Connection) -> RankOutcome:
        try:
            # A worker may have answered and died before this was read.
            if connection.poll(0):
                return connection.recv()
        except (EOFError, OSError):
            pass
        return self._death(rank)

    def _death(self, rank: int) -> RankOutcome:
        process = self._processes[rank]
        process.join(GRACE)
        stacks = self._read(self.seats[rank].stacks_file)
        text = f"the process {_ending(process.exitcode)}"
        return RankOutcome(rank, Status.DIED, text, stacks.strip(), self._printed(self.seats[rank]))

    def _hung(
        self, pending: dict[int, multiprocessing.connection.Connection], deadline: float
    ) -> Iterator[tuple[int, RankOutcome]]:
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
            yield rank, RankOutcome(rank, Status.HUNG, text, f"it was here:\n{stacks}")

    def _read(self, path: str) -> str:
        try:
            with open(path, errors="replace") as file:
                return file.read()[-8000:]
        except OSError:
            return ""

    def _printed(self, seat: Seat) -> str:
        return self._read(seat.output_file)[-4000:]

    def close(self) -> None:
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


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    hint = "; so does a system that is out of memory" if name == "SIGKILL" else ""
    return f"was killed by {name} (signal {-code}{hint})"


class WorkerPool:
    """The sets of a process that runs cases, by what they have to be.

    Args:
        most_processes (int): workers alive at a time; a set that is not in use is closed to make room.
    """

    def __init__(self, most_processes: int = MOST_PROCESSES) -> None:
        self.most_processes = most_processes
        self._context = None
        self._sets = {}
        self._failures = {}
        self._owner = os.getpid()
        atexit.register(self.close)

    def get(self, world_size: int, overlay: bool, name: str = "", device: str = "cpu") -> WorkerSet:
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
        if key in self._failures:
            # It would take as long to fail again.
            raise WorkersFailed(self._failures[key])
        found = self._sets.pop(key, None)
        if found is not None and not found.alive:
            found.close()
            found = None
        if found is None:
            while (
                self._sets and world_size + sum(each.world_size for each in self._sets.values()) > self.most_processes
            ):
                self._sets.pop(next(iter(self._sets))).close()
            try:
                found = self._start(world_size, overlay, device)
            except WorkersFailed as failure:
                self._failures[key] = str(failure)
                raise
        # Put last: the first ones are those not used for longest.
        self._sets[key] = found
        return found

    def _start(self, world_size: int, overlay: bool, device: str) -> WorkerSet:
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

    def close(self) -> None:
        """End all sets. Does nothing in a process forked from the one that made the pool."""
        if os.getpid() != self._owner:
            return
        while self._sets:
            self._sets.popitem()[1].close()
