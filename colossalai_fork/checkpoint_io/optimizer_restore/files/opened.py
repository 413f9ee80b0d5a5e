"""What opening a file gives."""

import contextlib
import gc
from typing import Any, Iterator, List

from .sources import FileSource

__all__ = ["Opened", "collector_paused"]


class Opened:
    """
    A file that has been opened as data.

    Args:
        content (Any): What it holds: plain data, with a :class:`SavedTensor` for each tensor.
        sources (List[FileSource]): The files that those lie in.
        fell_back (bool, optional): Whether torch's own loader has made the content; its tensors are in memory then.
    """

    def __init__(self, content: Any, sources: List[FileSource], fell_back: bool = False) -> None:
        self.content = content
        self.sources = sources
        self.fell_back = fell_back


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """
    Keep Python from looking for garbage while one file is opened.

    A file is many containers, all of which stay. Looking through them for cycles, again and again, takes longer than making
    them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
