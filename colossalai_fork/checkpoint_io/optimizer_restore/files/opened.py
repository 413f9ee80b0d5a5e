"""What opening a file gives."""

from typing import Any, List

from .sources import FileSource

__all__ = ["Opened"]


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
