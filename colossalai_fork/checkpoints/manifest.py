"""Write the manifest of a checkpoint: size and SHA-256 of each of its files."""

import json
import os
import tempfile
from typing import Callable

from ..checkpoint_io.optimizer_restore.files import manifest as format_of
from ..checkpoint_io.optimizer_restore.files.contents import read_contents
from ..checkpoint_io.optimizer_restore.files.sources import FileSource
from .opened import Checkpoint


def write_manifest(checkpoint: Checkpoint, advance: Callable[[int], None] = lambda count: None) -> str:
    """Write the manifest of a checkpoint as its files are now. An earlier one is replaced at once.

    Args:
        checkpoint (Checkpoint): a sound checkpoint.
        advance (Callable[[int], None]): told how many bytes have been read since the last call.

    Returns:
        str: the path of the manifest.

    Raises:
        UnreadableFileError: if a file cannot be read, or is written to meanwhile. Nothing is written then.
        OSError: if the manifest cannot be written. An earlier one is as it was.
    """
    path = checkpoint.saved.files[0] + format_of.MANIFEST
    manifest = format_of.Manifest(path, {})
    files = {}
    for file in checkpoint.saved.files:
        source = FileSource(file)
        try:
            found = read_contents(source, digest=True, advance=advance)
            files[manifest.name_of(file)] = {"bytes": source.size, "sha256": found.sha256}
        finally:
            source.close()
    content = {"format": format_of.FORMAT, "version": format_of.VERSION, "files": files}
    _replace(path, json.dumps(content, indent=2) + "\n")
    return path


def _replace(path: str, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".manifest-", dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # Who may read the checkpoint may read this.
        os.chmod(temporary, os.stat(path[: -len(format_of.MANIFEST)]).st_mode & 0o666)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
