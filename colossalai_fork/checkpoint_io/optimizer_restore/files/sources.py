"""Where saved bytes come from: a regular file that is read by position, or bytes in memory."""

import os
import stat
import threading
from typing import Any, Optional, Tuple

__all__ = ["UnreadableFileError", "FileSource", "MemorySource", "Window", "require_regular_file", "MAX_OPEN_FILES"]

# A checkpoint may have any number of shards; a process may not have any number of open files.
MAX_OPEN_FILES = 128

_open_files = 0
_count = threading.Lock()


class UnreadableFileError(Exception):
    """
    A checkpoint file that cannot be opened as data. The message gives the reason, without the file's name.

    Args:
        reason (str): The reason.
        missing (bool, optional): Whether there is no such file.
        file (str, optional): The file.
    """

    def __init__(self, reason: str, missing: bool = False, file: Optional[str] = None) -> None:
        super().__init__(reason)
        self.missing = missing
        self.file = file

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.missing, self.file)


def _said(error: BaseException) -> str:
    # Of an OSError not the path, which is not the message's to repeat.
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:200]


def require_regular_file(path: str) -> int:
    """
    Check that a path can be opened as data. Never waits for a pipe.

    Args:
        path (str): The file.

    Returns:
        int: Its size in bytes.

    Raises:
        UnreadableFileError: If it does not exist, is empty, or is a directory, pipe or device.
    """
    try:
        return _size_of_regular(os.stat(path))
    except FileNotFoundError:
        raise UnreadableFileError("the file does not exist", missing=True)
    except (OSError, ValueError) as error:
        raise UnreadableFileError("the file cannot be read: {}".format(_said(error)))


def _size_of_regular(status: os.stat_result) -> int:
    # Opening a pipe waits for a writer, and a device can be endless.
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFileError("it is not a regular file")
    if status.st_size == 0:
        raise UnreadableFileError("the file is empty")
    return status.st_size


def _identity(status: os.stat_result) -> Tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class FileSource:
    """
    One regular file, opened once and read by position. Several threads may read at the same time.

    Args:
        path (str): The file.

    Raises:
        UnreadableFileError: If there is no such file, or it is not a regular one, or empty.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor: Optional[int] = None
        self._lock = threading.Lock()
        require_regular_file(path)
        self._open()
        status = os.fstat(self._descriptor)
        try:
            self.size = _size_of_regular(status)
        except UnreadableFileError:
            self.close()
            raise
        self._opened_as = _identity(status)

    def _open(self) -> None:
        global _open_files
        # A file that has become a pipe since it was looked at must not be waited for.
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            self._descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            raise UnreadableFileError("the file does not exist", True, self.path)
        except (OSError, ValueError) as error:
            raise UnreadableFileError("the file cannot be read: {}".format(_said(error)), file=self.path)
        with _count:
            _open_files += 1
        if hasattr(os, "posix_fadvise"):
            try:
                # Only some ranges may be wanted, and the kernel would read what lies between them ahead.
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            except OSError:
                pass  # advice that is not taken changes nothing

    def descriptor(self) -> int:
        """
        Give the file's descriptor.

        Returns:
            int: The open file, which stays this object's. Opened again if it was given back.

        Raises:
            UnreadableFileError: If it cannot be opened again, or is another file now.
        """
        with self._lock:
            if self._descriptor is None:
                self._open()
                if _identity(os.fstat(self._descriptor)) != self._opened_as:
                    self._close()
                    raise UnreadableFileError("it has been replaced or written to since it was opened", file=self.path)
            return self._descriptor

    def advise(self, offset: int, length: int) -> None:
        """Tell the kernel that a range will be read soon."""
        if hasattr(os, "posix_fadvise"):
            try:
                os.posix_fadvise(self.descriptor(), offset, length, os.POSIX_FADV_WILLNEED)
            except (OSError, UnreadableFileError):
                pass  # whoever reads the range is told what is wrong

    def read_into(self, offset: int, buffer: Any) -> None:
        """
        Fill a buffer.

        Args:
            offset (int): Where to begin in the file.
            buffer (Any): What to fill: a writable buffer of bytes.

        Raises:
            UnreadableFileError: If the file ends before the buffer is full, or reading fails.
        """
        view = memoryview(buffer)
        descriptor = self.descriptor()
        done = 0
        while done < len(view):
            try:
                count = _read_some(descriptor, view[done:], offset + done)
            except OSError as error:
                raise UnreadableFileError("reading failed: {}".format(_said(error)), file=self.path)
            if count == 0:
                raise UnreadableFileError("it ends {} bytes too early".format(len(view) - done), file=self.path)
            done += count

    def read_bytes(self, offset: int, length: int) -> bytes:
        """Return a range of the file. Raises as :meth:`read_into` does."""
        if not 0 <= offset <= offset + length <= self.size:
            raise UnreadableFileError("it is cut short", file=self.path)
        buffer = bytearray(length)
        self.read_into(offset, buffer)
        return bytes(buffer)

    def check_unchanged(self) -> None:
        """
        Check that nobody has written to the file since it was opened.

        Raises:
            UnreadableFileError: If the file has been written to since it was opened. One that was deleted or replaced
                as a whole is still there for those who have it open.
        """
        try:
            unchanged = _identity(os.fstat(self.descriptor())) == self._opened_as
        except OSError as error:
            raise UnreadableFileError("the file cannot be read: {}".format(_said(error)), file=self.path)
        if not unchanged:
            raise UnreadableFileError("it has been written to since it was opened", file=self.path)

    def rest(self) -> None:
        """Give the open file back if there are many. The next read opens it again."""
        if _open_files > MAX_OPEN_FILES:
            self.close()

    def close(self) -> None:
        """Give the open file back."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        global _open_files
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with _count:
                _open_files -= 1
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self._close()


def _read_some(descriptor: int, view: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], offset)
    data = os.pread(descriptor, len(view), offset)
    view[: len(data)] = data
    return len(data)


class MemorySource:
    """
    Bytes in memory, read as a file is.

    Args:
        data (bytes): The bytes.
    """

    path = None

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self.size = len(self._data)

    def advise(self, offset: int, length: int) -> None:
        """Do nothing: memory is at hand."""

    def read_into(self, offset: int, buffer: Any) -> None:
        """Fill a buffer, or raise UnreadableFileError if there are too few bytes."""
        view = memoryview(buffer)
        view[:] = self._range(offset, len(view))

    def read_bytes(self, offset: int, length: int) -> bytes:
        """Return a range of the bytes, or raise UnreadableFileError if there are too few."""
        return bytes(self._range(offset, length))

    def _range(self, offset: int, length: int) -> memoryview:
        if not 0 <= offset <= offset + length <= self.size:
            raise UnreadableFileError("it is cut short")
        return self._data[offset : offset + length]

    def check_unchanged(self) -> None:
        """Do nothing: nobody else can write here."""

    def rest(self) -> None:
        """Do nothing: there is no open file."""

    def close(self) -> None:
        """Do nothing: there is no open file."""


class Window:
    """
    Many small pieces of a source, in about ascending order, for few reads. Small pieces far apart are read one by one.

    Args:
        source (Any): The source.
    """

    _SMALLEST = 512
    _LARGEST = 1 << 20
    _NEAR = 8192

    def __init__(self, source: Any) -> None:
        self._source = source
        self._size = source.size
        self.start = 0
        self.data = b""
        self._next = self._SMALLEST

    def at(self, offset: int, length: int) -> int:
        """
        Make a piece available in :attr:`data`.

        Args:
            offset (int): Where it begins in the source.
            length (int): Its length in bytes.

        Returns:
            int: Where it begins in :attr:`data`. Fewer bytes than asked for are there if the source ends before.
        """
        start = offset - self.start
        if start >= 0 and start + length <= len(self.data):
            return start
        near = 0 <= offset - self.start <= len(self.data) + self._NEAR
        self._next = min(self._next * 2, self._LARGEST) if near and self.data else self._SMALLEST
        wanted = max(0, min(max(length, self._next), self._size - offset))
        self.data = self._source.read_bytes(offset, wanted) if wanted else b""
        self.start = offset
        return 0
