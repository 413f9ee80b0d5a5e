"""Makes the patches of a series that edits functions in their places."""

from __future__ import annotations

import importlib
import pathlib
from typing import TYPE_CHECKING

from .errors import PatchError
from .finding import CHANGED, CRLF, OURS, READY, REVIEWED, Finding
from .functions.known import survey as survey_functions
from .text import imports, names, places
from .text.python_floor import check_syntax

if TYPE_CHECKING:
    from .functions.source import Source
    from .series import Patch, Series
    from .tree import Tree


class Edits:
    """Edits of upstream's functions, as patches.

    Args:
        changes (dict[str, list[places.Change]]): the edits of each patch.
        source (functions.source.Source | None): the code that replaces whole functions. Where it has replaced one, no
            edit is needed any more.
    """

    def __init__(self, changes: dict[str, list[places.Change]], source: Source | None = None) -> None:
        self._changes, self._source = changes, source

    def check(self) -> None:
        """Nothing can be wrong with edits before a tree is there."""

    def survey(self, patch: Patch, tree: Tree) -> list[Finding]:
        """Look at every place that a patch would change.

        Args:
            patch (series.Patch): the patch.
            tree (tree.Tree): upstream's sources.

        Returns:
            list[Finding]: one for each edit. If other code stands in for all functions that the patch would edit, what
            it would add counts as being there.
        """
        found = []
        for change in self._changes.get(patch.name, ()):
            found += self._look(tree, change)
        edited = [finding for edit, finding in found if isinstance(edit, places.Edit)]
        if (
            edited
            and all(finding.is_in for finding in edited)
            and any(finding.change == _REPLACED for finding in edited)
        ):
            return [Finding(finding.place, OURS, change=finding.change) for _, finding in found]
        return [finding for _, finding in found]

    def write(self, patch: Patch, root: pathlib.Path) -> set[str]:
        """Carry out one patch in a scratch tree.

        Args:
            patch (series.Patch): the patch.
            root (pathlib.Path): the tree, which has the patches before this one.

        Returns:
            set[str]: the files changed.

        Raises:
            DriftError: if a place is not found exactly once.
        """
        changed = set()
        for change in self._changes.get(patch.name, ()):
            path = root / change.file
            if change.optional and not path.exists():
                continue
            before = path.read_text(encoding="utf-8")
            after = places.apply(before, change)
            missing = [item for item in change.imports if item.bound not in names.imports(after)]
            after = imports.settle(root, change.file, before, imports.add(after, missing))
            check_syntax(change.file, after)
            path.write_text(after, encoding="utf-8", newline="\n")
            if after != before:
                changed.add(change.file)
        return changed

    def _look(self, tree: Tree, change: places.Change) -> list[tuple[places.Edit | places.Method, Finding]]:
        text = tree.text(change.file)
        if text is None and change.optional:
            return []
        found = []
        for edit in change.edits:
            place = f"{change.file}:{edit.function}"
            if text is None:
                found.append(
                    (edit, Finding(place, CHANGED, change=f"{change.file} is gone, which had {edit.function}"))
                )
            elif "\r\n" in text:
                found.append((edit, Finding(place, CHANGED, change=f"{change.file} {CRLF}")))
            else:
                finding, text = self._look_at(tree, change.file, text, edit, place)
                found.append((edit, finding))
        return found

    def _look_at(
        self, tree: Tree, file: str, text: str, edit: places.Edit | places.Method, place: str
    ) -> tuple[Finding, str]:
        try:
            if places.is_done(text, edit):
                difference = places.difference(text, edit)
                return Finding(place, REVIEWED if difference else OURS, change=difference or None), text
            text = places.apply(text, places.Change(file, [edit]))
            return Finding(place, READY), text
        except PatchError as error:
            if self._is_replaced(tree, file, edit):
                return Finding(place, OURS, change=_REPLACED), text
            return Finding(place, CHANGED, change="\n".join(getattr(error, "changes", [str(error)]))), text

    def _is_replaced(self, tree: Tree, file: str, edit: places.Edit | places.Method) -> bool:
        if self._source is None:
            return False
        rows = [row for row in self._source.rows if row.file == file]
        own = [row for row in rows if row.name == edit.function]
        findings = survey_functions(self._source, tree, own or rows)
        return bool(findings) and all(finding.is_in for finding in findings)


_REPLACED = "other code of ours stands here already"


def read(series: Series) -> dict[str, list[places.Change]]:
    """Collect the edits of a series.

    Args:
        series (series.Series): the series.

    Returns:
        dict[str, list[places.Change]]: the edits of each patch, from the module that is called like it.
    """
    package = f"{__package__}.fixes"
    return {
        patch.name: importlib.import_module(f"{package}.{patch.name.replace('-', '_')}").CHANGES
        for patch in series.patches
    }
