"""Measures how much memory a block of code takes and how much of its files it reads (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select

MIB = 2**20
# glibc's name for the size from which on each allocation is a mapping of its own, which freeing gives back at once. Unless
# it is set, it grows with what is freed.
_MMAP_THRESHOLD = -3


def give_freed_memory_back() -> None:
    """Have the C library give back the memory of tensors as soon as they are freed.

    To be called before anything is made that a watched block frees. Otherwise its memory may come from a heap, which keeps it,
    and counts as if it were still in use.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, MIB // 16)


class MemoryWatch:
    """Samples the memory of this process, from another process, while a block runs.

    A thread would not do: whoever loads a file may hold the interpreter lock all the time.

    Attributes:
        anonymous (int): most bytes of anonymous memory above those at the start.
        mapped (int): most bytes of mapped files above those at the start.
    """

    def __enter__(self) -> MemoryWatch:
        gc.collect()
        give_freed_memory_back()
        with contextlib.suppress(AttributeError, OSError):
            # Memory that was freed but not given back would hide what is taken next.
            ctypes.CDLL(None).malloc_trim(0)
        self.anonymous = self.mapped = 0
        self._first = _memory(os.getpid())
        self._stop_reader, self._stop_writer = os.pipe()
        self._peak_reader, peak_writer = os.pipe()
        self._sampler = os.fork()
        if self._sampler == 0:
            try:
                _sample(os.getppid(), self._stop_reader, peak_writer)
            finally:
                os._exit(0)
        os.close(peak_writer)
        # Not before the first sample has been taken.
        os.read(self._peak_reader, 1)
        return self

    def __exit__(self, *exception: object) -> None:
        os.write(self._stop_writer, b"x")
        peaks = os.read(self._peak_reader, 100).decode().split()
        os.waitpid(self._sampler, 0)
        for descriptor in (self._stop_reader, self._stop_writer, self._peak_reader):
            os.close(descriptor)
        if len(peaks) == 2:
            self.anonymous, self.mapped = (max(0, int(peak) - first) for peak, first in zip(peaks, self._first))


def _sample(process: int, stop: int, peaks: int) -> None:
    # Runs in a fork of a process with threads: nothing here may need what those hold.
    anonymous = mapped = 0
    first = True
    while True:
        now = _memory(process)
        anonymous, mapped = max(anonymous, now[0]), max(mapped, now[1])
        if first:
            os.write(peaks, b"x")
            first = False
        if select.select([stop], [], [], 0.0002)[0]:
            break
    os.write(peaks, f"{anonymous} {mapped}".encode())


def _memory(process: int) -> tuple[int, ...]:
    with open(f"/proc/{process}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))
