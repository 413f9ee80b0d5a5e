"""What a load costs beside time: bytes from the disk, memory, and files opened (Linux).

Run as a program, ``watch.py PID``, it samples the memory of another process until its input ends: a thread of that process
would have to wait for whoever holds the interpreter lock.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys

#: Seconds between two looks at the memory.
INTERVAL = 0.001


def disk_bytes() -> int:
    """Bytes that this process has had read from the disk so far.

    Returns:
        int: the bytes; 0 where the system does not say.
    """
    try:
        with open("/proc/self/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))
    except OSError:
        return 0


def memory(process: int) -> tuple[int, int]:
    """Anonymous and resident memory of a process.

    Args:
        process (int): its id.

    Returns:
        Tuple[int, int]: bytes of each.
    """
    with open(f"/proc/{process}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "VmRSS"))


class Sampler:
    """Watches the memory of this process from another one, for as long as the block runs.

    Attributes:
        anonymous (int): most anonymous memory at any time beyond what there is before or afterwards, whichever is more.
        resident (int): most resident memory at any time.
    """

    def __enter__(self) -> Sampler:
        self._before = memory(os.getpid())
        command = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid())]
        self._program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._program.stdout.readline()
        return self

    def __exit__(self, *exception: object) -> None:
        after = memory(os.getpid())
        peaks, _ = self._program.communicate()
        anonymous, self.resident = (int(number) for number in peaks.split())
        self.anonymous = max(0, anonymous - max(self._before[0], after[0]))


class Openings:
    """Counts how often files of a directory are opened. Code that is not Python's goes unnoticed.

    Args:
        directory (str): the directory.

    Attributes:
        counts (Dict[str, int]): openings by path.
    """

    def __init__(self, directory: str) -> None:
        self.counts = {}
        self._directory = os.path.realpath(directory) + os.sep
        self._counting = False
        # Audit hooks stay for the life of the process.
        sys.addaudithook(self._note)

    def __enter__(self) -> Openings:
        self._counting = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._counting = False

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._counting and event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(self._directory):
                self.counts[path] = self.counts.get(path, 0) + 1


def _main(process: int) -> None:
    peaks = memory(process)
    print(flush=True)
    while not select.select([sys.stdin], [], [], INTERVAL)[0]:
        with contextlib.suppress(OSError):
            peaks = tuple(map(max, peaks, memory(process)))
    print(*peaks)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
