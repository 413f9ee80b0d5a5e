"""The checkpoints' files: writing them, and having them in the page cache or out of it."""

import os
import shutil

import torch

from . import contestants, gate_parts
from .cases import COLD, Case
from .subjects import Subject


def write(case: Case, subject: Subject, rank: int, directory: str) -> None:
    """Save the state of a subject for each contestant of a case. To be called on every rank.

    Args:
        case (Case): the case.
        subject (Subject): a subject that has taken a step.
        rank (int): this rank.
        directory (str): where to.
    """
    sharded = os.path.join(directory, "sharded")
    if case.safetensors:
        gate_parts.write_safetensors(sharded, subject.inner.state_dict(), case.shards)
    else:
        subject.io.save_optimizer(subject.optimizer, sharded, shard=True, size_per_shard=case.megabytes_per_shard)
    if "native" in case.contestants and rank == 0:
        os.makedirs(os.path.join(directory, "native"), exist_ok=True)
        torch.save(subject.inner.state_dict(), os.path.join(directory, "native", "optimizer.pt"))
    if "dcp" in case.contestants:
        from torch.distributed import checkpoint

        state = contestants.dcp_state(subject)[1]
        checkpoint.save({"optimizer": state}, checkpoint_id=os.path.join(directory, "dcp"))


def settle(case: Case, directory: str) -> None:
    """Give each rank files of its own, as on machines that share none, and have all files on the disk.

    Args:
        case (Case): the case.
        directory (str): where its checkpoints are.
    """
    if case.processes > 1 and COLD in case.caches:
        for files in [entry.path for entry in os.scandir(directory) if entry.is_dir()]:
            for rank in range(case.processes):
                shutil.copytree(files, f"{files}.{rank}")
    # Or the system would write while somebody's time is taken.
    for folder, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                os.fsync(file)


def place(case: Case, directory: str, files: str, rank: int, cache: str) -> str:
    """Where a rank finds a checkpoint.

    Args:
        case (Case): the case.
        directory (str): where its checkpoints are.
        files (str): which of them.
        rank (int): the rank.
        cache (str): "warm" or "cold".

    Returns:
        str: the directory.
    """
    own = cache == COLD and case.processes > 1
    return os.path.join(directory, f"{files}.{rank}" if own else files)


def warm(path: str) -> None:
    """Have a checkpoint in the page cache.

    Args:
        path (str): its directory.
    """
    buffer = bytearray(2**20)
    for name in os.listdir(path):
        with open(os.path.join(path, name), "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def drop(path: str) -> None:
    """Have a checkpoint on the disk, and out of the page cache.

    Args:
        path (str): its directory.
    """
    for name in os.listdir(path):
        file = os.open(os.path.join(path, name), os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
