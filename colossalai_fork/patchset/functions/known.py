"""Is a function of the tree one that the series was written for, is it ours already, or what changed in it?"""

from __future__ import annotations

import difflib
import importlib.util
import pathlib
import warnings
from typing import TYPE_CHECKING, Iterator

from ...overlay import fingerprint
from ..errors import PatchError
from ..finding import CHANGED, CRLF, OURS, READY, REVIEWED, Finding
from ..text import transplant
from ..text.wording import code, differences
from .carry import carry

if TYPE_CHECKING:
    from ...overlay.table import Replacement
    from ..tree import Tree
    from .source import Source


def survey(source: Source, tree: Tree, rows: list[Replacement]) -> list[Finding]:
    """Look at every place that the series would change.

    Args:
        source (source.Source): the fork's code.
        tree (tree.Tree): upstream's sources.
        rows (list): rows of the replacement table.

    Returns:
        list[Finding]: one for each row.
    """
    return [_look(source, tree, row) for row in rows]


def _look(source: Source, tree: Tree, row: Replacement) -> Finding:
    place = f"{row.file}:{row.name}"
    text = tree.text(row.file)
    if text is None:
        return Finding(place, CHANGED, change=f"{row.file} is gone, which had {row.name}")
    if "\r\n" in text:
        return Finding(place, CHANGED, change=f"{row.file} {CRLF}")
    try:
        found = _find(text, row.name, row.file)
    except SyntaxError as error:
        return Finding(place, CHANGED, change=f"{row.file} is not Python: {error}")
    if found is None:
        if row.kind == "add":
            return Finding(place, READY)
        if row.kind == "inherit":
            return Finding(place, OURS)
        return Finding(place, CHANGED, change=f"{row.file} no longer has {row.name}")
    ours = _our_text(source, row) if row.kind != "inherit" else None
    if ours is not None and found.fingerprint == fingerprint.Source(ours).fingerprint:
        return Finding(place, OURS)
    if ours is not None and code(found.text, worded=False) == code(ours, worded=False):
        return Finding(place, REVIEWED, change=differences(ours, found.text, place))
    version = fingerprint.known_version(found, row.known)
    if version is not None and row.kind in ("replace", "inherit"):
        return Finding(place, READY, version=version)
    return Finding(place, CHANGED, change=_describe(tree, row, found, ours))


def _find(text: str, name: str, file: str = "<source>") -> fingerprint.Source | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fingerprint.find_in_module(text, name, file)


def _our_text(source: Source, row: Replacement) -> str | None:
    try:
        statement = carry(source, row.our_module, row.our_name, row.module).statement
    except PatchError:
        return None
    return transplant.text(transplant.renamed(statement, row.name.rpartition(".")[2]))


def _describe(tree: Tree, row: Replacement, found: fingerprint.Source, ours: str | None) -> str:
    where = f"{row.file}:{found.first_line}: {row.name}"
    if row.kind == "add":
        shown = differences(ours or "", found.text, row.file)
        return f"{where} exists already, and is not the one that this series adds\n{shown}"
    for label, text in _texts_that_may_be_known(tree, row):
        try:
            before = _find(text, row.name)
        except SyntaxError:
            continue
        if before is not None and fingerprint.known_version(before, row.known):
            lines = difflib.unified_diff(
                before.text.splitlines(),
                found.text.splitlines(),
                f"{row.file} ({label})",
                f"{row.file} (here)",
                lineterm="",
            )
            return f"{where} is not as known\n" + "\n".join(lines)
    return f"{where} is not as known\n" + fingerprint.difference(found, row.known)


def _texts_that_may_be_known(tree: Tree, row: Replacement) -> Iterator[tuple[str, str]]:
    # Fingerprints recognise a function but cannot show it: the text to compare with comes from the checkout's own
    # past, or else from an installed ColossalAI.
    yield from tree.earlier_texts(row.file)
    installed = importlib.util.find_spec("colossalai")
    for location in installed.submodule_search_locations or () if installed else ():
        file = pathlib.Path(location).parent / row.file
        if file.is_file() and not file.is_relative_to(tree.root):
            yield "installed ColossalAI", file.read_text(encoding="utf-8")
