"""What a person sees of a load: how far it is, if it takes long, and one line when it is done."""

import sys
import time
from typing import Any, Iterable, Iterator

import torch.distributed as dist
from tqdm import tqdm

from .files.sources import bytes_read

__all__ = ["Report", "bar", "counted"]

# Who waits for less does not want to know.
DELAY = 2.0


def bar(what: str, total: int, unit: str) -> Any:
    """
    Make a bar that shows progress.

    Args:
        what (str): What is going on.
        total (int): How much there is to do.
        unit (str): In what; ``B`` for bytes.

    Returns:
        tqdm: A bar for a ``with`` statement. It shows itself after two seconds, on rank 0 of a terminal and nowhere else.
    """
    seen = sys.stderr.isatty() and not (dist.is_initialized() and dist.get_rank())
    options = {"unit_scale": unit == "B", "dynamic_ncols": True, "leave": False, "disable": not seen}
    return tqdm(desc=what, total=total, unit=unit, delay=DELAY, file=sys.stderr, **options)


def counted(entries: Iterable[Any], total: int) -> Iterator[Any]:
    """
    Walk through entries, and show how many are done.

    Args:
        entries (Iterable[Any]): The states of parameters, and perhaps of the optimizer as a whole.
        total (int): The number of parameters.

    Yields:
        Any: The entries, counted by a :func:`bar`.
    """
    with bar("loading the optimizer", total, " parameters") as shown:
        for entry in entries:
            yield entry
            shown.update()


class Report:
    """One line about a load, which begins when this object is made."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._bytes_before = bytes_read()

    def log(self, parameters: int) -> None:
        """
        Write the line into ColossalAI's log, on rank 0, unless nothing came from a file.

        Args:
            parameters (int): How many parameters have been loaded.
        """
        count = bytes_read() - self._bytes_before
        if count:
            # Takes seconds to import, and is there already when somebody loads through a checkpoint IO class.
            from colossalai.logging import get_dist_logger

            text = "loaded the optimizer: {:,} parameters, {:,} bytes read by this rank, {:.1f} seconds"
            get_dist_logger().info(text.format(parameters, count, time.monotonic() - self._started), ranks=[0])
