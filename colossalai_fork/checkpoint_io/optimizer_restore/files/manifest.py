"""The manifest of a checkpoint: a small file beside its index that has the size and the digest of each of its files.

It is called as the index, or as the file that holds the whole state, with ``.manifest`` behind it::

    {
      "format": "optimizer checkpoint manifest",
      "version": 1,
      "files": {"pytorch_optim.bin.index.json": {"bytes": 4711, "sha256": "9f86d0..."}, ...}
    }

Names are relative to its directory. All files of the checkpoint are in it, the index and the group file too.
"""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional

from ..errors import Problem, shown
from .sources import FileSource, UnreadableFileError

__all__ = ["FORMAT", "MANIFEST", "VERSION", "FileRecord", "Manifest", "altered_sizes", "read_manifest"]

MANIFEST = ".manifest"
FORMAT = "optimizer checkpoint manifest"
VERSION = 1
ANEW = "Take an earlier checkpoint; or, if this one was saved again since, write its manifest anew"
_LARGEST = 1 << 30


class FileRecord(NamedTuple):
    """
    What a manifest says of a file.

    Args:
        size (int): Its size in bytes.
        sha256 (str): Its digest, in hexadecimal digits.
    """

    size: int
    sha256: str


class Manifest:
    """
    A manifest that was read.

    Args:
        path (str): The file.
        records (Dict[str, FileRecord]): What it says, by name.
    """

    def __init__(self, path: str, records: Dict[str, FileRecord]) -> None:
        self.path = path
        self.records = records

    def name_of(self, file: str) -> str:
        """Return how the manifest calls a file."""
        return os.path.relpath(os.path.abspath(file), os.path.dirname(os.path.abspath(self.path)))


def read_manifest(file: str, problems: List[Problem]) -> Optional[Manifest]:
    """
    Read the manifest of a checkpoint.

    Args:
        file (str): The index, or the file that holds the whole state.
        problems (List[Problem]): Added to if there is a manifest that cannot be used.

    Returns:
        Optional[Manifest]: The manifest, if there is one.
    """
    path = file + MANIFEST
    try:
        source = FileSource(path)
        try:
            if source.size > _LARGEST:
                raise UnreadableFileError("it has {} bytes".format(source.size))
            content = json.loads(source.read_bytes(0, source.size).decode("utf-8"))
        finally:
            source.close()
        return Manifest(path, _records(content))
    except UnreadableFileError as error:
        if error.missing:
            return None
        reason = str(error)
    except (ValueError, RecursionError, MemoryError) as error:
        reason = shown(str(error))
    problems.append(Problem("the manifest cannot be read: {}".format(reason), True, path, remedy=ANEW))
    return None


def _records(content: Any) -> Dict[str, FileRecord]:
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != VERSION:
        raise ValueError("it is no {} of version {}".format(FORMAT, VERSION))
    files = content.get("files")
    if not isinstance(files, dict):
        raise ValueError("it has no mapping 'files'")
    records = {}
    for name, said in files.items():
        record = FileRecord(said.get("bytes"), said.get("sha256")) if isinstance(said, dict) else None
        if record is None or type(record.size) is not int or not isinstance(record.sha256, str):
            raise ValueError("it does not say what {!r} was".format(shown(name)))
        records[name] = record
    return records


def altered_sizes(manifest: Manifest, files: List[str]) -> List[Problem]:
    """
    Compare what costs next to nothing. A file that is not there is for others to complain about.

    Args:
        manifest (Manifest): What the files were.
        files (List[str]): All files of the checkpoint.

    Returns:
        List[Problem]: What differs.
    """
    problems = []
    names = {manifest.name_of(file): file for file in files}
    for name, file in names.items():
        record = manifest.records.get(name)
        if record is None:
            text = "the manifest does not list the file: {}".format(manifest.path)
            problems.append(Problem(text, True, file, remedy=ANEW))
            continue
        try:
            size = os.stat(file).st_size
        except (OSError, ValueError):
            continue
        if size != record.size:
            text = "the file does not have the size that the manifest gives it"
            problems.append(Problem(text, True, file, None, None, record.size, size, ANEW))
    for name in sorted(set(manifest.records).difference(names)):
        text = "the manifest lists a file that is no part of the checkpoint: {}".format(shown(name))
        problems.append(Problem(text, True, manifest.path, remedy=ANEW))
    return problems
