"""What one rank does: save the checkpoints of a case, or load one of them for one contestant."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import datetime
import gc
import importlib
import json
import os
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable

from .cases import COLD, DESTINATIONS, Case

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


@dataclasses.dataclass(frozen=True)
class Task:
    """Work for one rank.

    Attributes:
        case (Case): the case.
        contestant (str): who loads; empty for saving.
        rank (int): the rank.
        directory (str): where the case's checkpoints are.
        rendezvous (str): a file that does not exist yet, for the ranks to meet.
        observed (bool): whether memory and openings are watched, which takes time of its own.
        device (str): "cpu" or "cuda".
    """

    case: Case
    contestant: str
    rank: int
    directory: str
    rendezvous: str
    observed: bool
    device: str

    @property
    def sizes_file(self) -> str:
        """Where the bytes of each tensor that the rank holds are written down."""
        return os.path.join(self.directory, f"sizes-{self.rank}.json")


def work(connection: Connection, task: Task) -> None:
    """Do a task, send what came of it, and end the process.

    Args:
        connection (multiprocessing.connection.Connection): gets a list of measurements, or the text of an error.
        task (Task): the task.
    """
    _redirect_output(task.rendezvous + f".log-{task.rank}")
    try:
        _join(task)
        connection.send(_load(task) if task.contestant else _save(task))
    except BaseException:
        connection.send(traceback.format_exc())
    # Not the orderly way out: destructors of process groups wait for peers that may be gone.
    os._exit(0)


def _redirect_output(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _join(task: Task) -> None:
    import torch
    import torch.distributed

    from . import gate_parts

    # Where nothing was preloaded, this is the time to import it.
    importlib.import_module(f"{__package__}.imports")

    torch.set_num_threads(1)
    if task.device == "cpu":
        gate_parts.stand_in_for_cuda()
    if task.case.processes > 1:
        torch.distributed.init_process_group(
            "gloo",
            init_method="file://" + task.rendezvous,
            rank=task.rank,
            world_size=task.case.processes,
            timeout=datetime.timedelta(minutes=5),
        )


def _save(task: Task) -> list[dict[str, Any]]:
    from . import checkpoints, subjects

    subject = subjects.make(task.case, task.device)
    subject.train()
    checkpoints.write(task.case, subject, task.rank, task.directory)
    with open(task.sizes_file, "w") as file:
        json.dump(subject.tensor_sizes(), file)
    return []


def _load(task: Task) -> list[dict[str, Any]]:
    from . import checkpoints
    from .contestants import CONTESTANTS

    contestant = CONTESTANTS[task.contestant]
    contestant.get_ready()
    with open(task.sizes_file) as file:
        sizes = json.load(file)
    subject = contestant.subject(task.case, task.device, sizes)
    measurements = []
    for cache in task.case.caches:
        path = checkpoints.place(task.case, task.directory, contestant.files, task.rank, cache)
        subject.forget()
        gc.collect()
        for destination in DESTINATIONS:
            if destination == "trained":
                subject.train()
            (checkpoints.drop if cache == COLD else checkpoints.warm)(path)
            _give_memory_back()
            measured = _measure(task, lambda: contestant.load(subject, path), path)
            measurements.append({"cache": cache, "destination": destination, "own_bytes": sum(sizes), **measured})
            loaded = sum(subject.tensor_sizes())
            if loaded != sum(sizes):
                raise AssertionError(f"{loaded} bytes of state after loading, {sum(sizes)} when it was saved")
    return measurements


def _give_memory_back() -> None:
    # Memory that was freed but is kept by the C library would be a present to whoever loads next.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _measure(task: Task, load: Callable[[], None], path: str) -> dict[str, float]:
    import torch

    from . import watch

    wait = torch.cuda.synchronize if task.device == "cuda" else lambda: None
    with contextlib.ExitStack() as observing:
        if task.observed:
            openings = watch.Openings(path)
            sampler = observing.enter_context(watch.Sampler())
            observing.enter_context(openings)
        if task.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
        if task.case.processes > 1:
            torch.distributed.barrier()
        read = watch.disk_bytes()
        start = time.perf_counter()
        load()
        wait()
        measured = {"seconds": time.perf_counter() - start, "disk_bytes": watch.disk_bytes() - read}
        if task.device == "cuda":
            more = max(held, torch.cuda.memory_allocated())
            measured["extra_device_bytes"] = torch.cuda.max_memory_allocated() - more
    if task.observed:
        measured["extra_anonymous_bytes"], measured["peak_resident_bytes"] = sampler.anonymous, sampler.resident
        measured["files_opened"], measured["openings"] = len(openings.counts), sum(openings.counts.values())
    return measured
