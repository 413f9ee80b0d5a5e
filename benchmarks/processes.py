"""Fresh processes for each measurement."""

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import pathlib
import time
from multiprocessing.connection import Connection
from typing import Any, Callable, Iterator

#: Seconds until a rank counts as hung.
DEADLINE = 600.0


class RanksFailed(Exception):
    """A rank failed, and with it the measurement; the message says which, and what it printed."""


class Processes:
    """Starts the ranks of one measurement after another.

    Args:
        device (str): "cpu" or "cuda".
    """

    def __init__(self, device: str) -> None:
        # A process that has looked for a CUDA device cannot be forked.
        self._context = multiprocessing.get_context("spawn" if device == "cuda" else "forkserver")
        if device != "cuda":
            self._context.set_forkserver_preload([f"{__package__}.imports"])
            with _environment():
                multiprocessing.forkserver.ensure_running()
            if self.run(_count_threads, [None]) != [1]:
                # A fork would copy the locks of threads that it does not copy.
                self._context = multiprocessing.get_context("spawn")

    def run(self, target: Callable[[Connection, Any], None], tasks: list[Any]) -> list[Any]:
        """Run a task on each rank.

        Args:
            target (Callable[[Connection, Any], None]): is called with a connection and a task, in a process of its own.
            tasks (List[Any]): one for each rank.

        Returns:
            List[Any]: what each rank sent.

        Raises:
            RanksFailed: a rank failed or hung.
        """
        started, connections = [], []
        try:
            for task in tasks:
                mine, theirs = self._context.Pipe()
                process = self._context.Process(target=target, args=(theirs, task), daemon=True)
                process.start()
                theirs.close()
                started.append(process)
                connections.append(mine)
            return self._collect(connections)
        finally:
            for process, connection in zip(started, connections):
                connection.close()
                process.join(0 if process.exitcode is None else None)
                process.kill()
                process.join()

    def _collect(self, connections: list[Connection]) -> list[Any]:
        answers = {}
        ends = time.monotonic() + DEADLINE
        while len(answers) < len(connections):
            pending = [connection for connection in connections if connection not in answers]
            ready = multiprocessing.connection.wait(pending, max(0.0, ends - time.monotonic()))
            if not ready:
                ranks = [rank for rank, connection in enumerate(connections) if connection in pending]
                raise RanksFailed(f"ranks {ranks} have not ended after {DEADLINE:g} s")
            for connection in ready:
                rank = connections.index(connection)
                try:
                    answers[connection] = connection.recv()
                except EOFError:
                    raise RanksFailed(f"the process of rank {rank} died") from None
                if isinstance(answers[connection], str):
                    raise RanksFailed(f"rank {rank}: {answers[connection]}")
        return [answers[connection] for connection in connections]


def _count_threads(connection: Connection, task: None) -> None:
    from . import imports

    connection.send(imports.THREADS)
    os._exit(0)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    # The fork server looks for what it is to import on the path that it starts with, and must not start threads.
    root = str(pathlib.Path(__file__).resolve().parents[1])
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "OMP_NUM_THREADS")}
    path = os.pathsep.join([root] + [before["PYTHONPATH"]] * bool(before["PYTHONPATH"]))
    os.environ.update(PYTHONPATH=path, OMP_NUM_THREADS="1")
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
