"""What ColossalAI's tests import from ``utils``; the released sdist leaves that file out."""

import contextlib
import tempfile

import torch.distributed as dist


@contextlib.contextmanager
def shared_tempdir():
    """Have a directory that rank 0 makes and every rank uses.

    Yields:
        str: its path.
    """
    with tempfile.TemporaryDirectory() if dist.get_rank() == 0 else contextlib.nullcontext() as own:
        path = [own]
        dist.broadcast_object_list(path)
        try:
            yield path[0]
        finally:
            dist.barrier()
