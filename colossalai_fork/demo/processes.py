"""Runs the demo's parts in processes of their own, which are ended whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

import colossalai_fork

#: Seconds without progress until a process counts as hung. Imports may take most of it on a busy machine.
SILENCE = 180.0
#: Seconds that the others get to end by themselves, and to say why, once one has failed.
GRACE = 3.0
#: Seconds between two looks.
INTERVAL = 0.1

_ENVIRONMENT = {
    # One thread each: faster for small tensors, and sums are always made in the same order.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # The demo shows what happens on CPU, and the same on every machine.
    "CUDA_VISIBLE_DEVICES": "",
    # ColossalAI warns of packages that are not installed.
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
}


class ProcessFailed(RuntimeError):
    """A process of the demo failed or hung; the text says what it printed."""


class Processes:
    """Python modules that run at the same time.

    Args:
        commands (List[List[str]]): a module and its arguments, each.
        directory (str): where to put what they print, and whatever else they leave.
    """

    def __init__(self, commands: list[list[str]], directory: str) -> None:
        self.commands = commands
        self._environment = _environment(directory)
        self._outputs = [os.path.join(directory, f"output-{index}") for index in range(len(commands))]
        self._errors = [os.path.join(directory, f"errors-{index}") for index in range(len(commands))]
        self._processes = []
        try:
            for command, output, errors in zip(commands, self._outputs, self._errors):
                self._start(command, output, errors)
        except BaseException:
            self.end()
            raise

    def _start(self, command: list[str], output: str, errors: str) -> None:
        with open(output, "wb") as stdout, open(errors, "wb") as stderr:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=self._environment,
                )
            )

    def wait(self, progress: Callable[[], Any] = lambda: None, silence: float | None = None) -> list[str]:
        """Wait until all have ended.

        Args:
            progress (Callable[[], Any]): called again and again; what it returns must change now and then.
            silence (Optional[float]): seconds it may stay the same; ``SILENCE`` if not given.

        Returns:
            List[str]: what each has printed.

        Raises:
            ProcessFailed: one has failed, or nothing has changed for too long.
        """
        silence = SILENCE if silence is None else silence
        seen, since = None, time.monotonic()
        while True:
            statuses = [process.poll() for process in self._processes]
            failed = next((index for index, status in enumerate(statuses) if status), None)
            if failed is not None:
                self._end_within(GRACE)
                raise ProcessFailed(self._describe(failed, f"ended with exit status {statuses[failed]}"))
            now = progress(), statuses
            if None not in statuses:
                return [_read(output) for output in self._outputs]
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > silence:
                hung = statuses.index(None)
                raise ProcessFailed(self._describe(hung, f"made no progress for {silence:g} s and was ended"))
            time.sleep(INTERVAL)

    def _describe(self, index: int, what: str) -> str:
        printed = (_read(self._outputs[index]) + _read(self._errors[index])).strip()[-4000:]
        return f"python -m {' '.join(self.commands[index])} {what}.\n{printed or '(it printed nothing)'}"

    def _end_within(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while any(process.poll() is None for process in self._processes) and time.monotonic() < until:
            time.sleep(INTERVAL)

    def end(self) -> None:
        """End those that still run."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        for process in self._processes:
            process.wait()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


def temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """Make a directory for the demo's files.

    Returns:
        tempfile.TemporaryDirectory: a context manager that removes it at the end.
    """
    return tempfile.TemporaryDirectory(prefix="colossalai-fork-demo-", ignore_cleanup_errors=True)


def _environment(directory: str) -> dict[str, str]:
    # The processes must import this very package, however it got into ours.
    package = os.path.dirname(os.path.dirname(os.path.abspath(colossalai_fork.__file__)))
    search_path = [package, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, search_path))}
    # torch makes directories that it does not remove.
    environment["TMPDIR"] = directory
    if os.path.exists("/sys/class/net/lo"):
        # All are on this machine, whatever its host name resolves to.
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment


def _read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()
