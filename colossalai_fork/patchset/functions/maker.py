"""Makes the patches of a series that replaces whole functions and brings new modules."""

from __future__ import annotations

import ast
import pathlib
from typing import TYPE_CHECKING

from ..errors import DriftError, PatchError
from ..finding import CHANGED, CRLF, OURS, READY, REVIEWED, Finding
from ..text import imports, transplant
from ..text.modules import module_of, python_files
from ..text.python_floor import check_names, check_syntax
from ..text.syntax import parse
from ..text.wording import code, differences
from ..tree import Tree
from .carry import carried_texts, check_table, imported_new_modules
from .graft import finish, graft
from .known import survey

if TYPE_CHECKING:
    from ...overlay.table import Replacement
    from ..edits import Edits
    from ..series import Patch, Series
    from .source import Source


class Functions:
    """The fork's functions, as patches.

    Args:
        source (source.Source): the fork's code.
        series (series.Series): the patches, in order.
        edits (edits.Edits | None): edits in places, which come along with functions in the same patch.

    Attributes:
        source (source.Source): the same.
    """

    def __init__(self, source: Source, series: Series, edits: Edits | None = None) -> None:
        self.source, self._series, self._edits = source, series, edits
        self._new_modules = None

    def check(self) -> None:
        """Refuse a replacement table that does not fit the series, or that cannot be carried.

        Raises:
            PatchError: naming what does not fit.
        """
        lacking = {row.patch for row in self.source.rows} - {patch.name for patch in self._series.patches}
        if lacking:
            raise PatchError(f"the replacement table names patches that the series lacks: {sorted(lacking)}")
        check_table(self.source)

    def rows(self, patch: Patch) -> list[Replacement]:
        """List the rows of the replacement table that a patch carries out.

        Args:
            patch (series.Patch): the patch.

        Returns:
            list: the rows.
        """
        return [row for row in self.source.rows if row.patch == patch.name]

    def survey(self, patch: Patch, tree: Tree) -> list[Finding]:
        """Look at every place that a patch would change.

        Args:
            patch (series.Patch): the patch.
            tree (tree.Tree): upstream's sources.

        Returns:
            list[Finding]: one for each row and edit, and one for each module that the patch is the first to need.
        """
        found = survey(self.source, tree, self.rows(patch))
        found += self._edits.survey(patch, tree) if self._edits else []
        return found + [self._look(tree, file, text) for file, text in sorted(self.brings(patch).items())]

    def brings(self, patch: Patch) -> dict[str, str]:
        """Find the new modules that a patch is the first to need.

        Args:
            patch (series.Patch): the patch.

        Returns:
            dict[str, str]: their sources by file.
        """
        if self._new_modules is None:
            self._new_modules, before = {}, set()
            for each in self._series.patches:
                texts = carried_texts(self.source, self.rows(each))
                texts += [
                    (module_of(file), template.read_text(encoding="utf-8")) for file, template in each.tests.items()
                ]
                needed = imported_new_modules(self.source, texts)
                self._new_modules[each.name] = {file: text for file, text in needed.items() if file not in before}
                before |= set(needed)
        return self._new_modules[patch.name]

    def write(self, patch: Patch, root: pathlib.Path) -> set[str]:
        """Carry out one patch in a scratch tree.

        Args:
            patch (series.Patch): the patch.
            root (pathlib.Path): the tree, which has the patches before this one.

        Returns:
            set[str]: the files changed and added.

        Raises:
            DriftError: if a place is not as known.
        """
        rows = self.rows(patch)
        findings = survey(self.source, Tree(root), rows)
        changes = [finding.change for finding in findings if finding.verdict == CHANGED]
        if changes:
            raise DriftError(changes)
        rows = [row for row, finding in zip(rows, findings) if not finding.is_in]
        texts = {}
        for file in sorted({row.file for row in rows}):
            texts[file] = graft(self.source, root, file, [row for row in rows if row.file == file])
        for file, text in self.brings(patch).items():
            text = imports.sort(text, root)
            present = self._look(Tree(root), file, text)
            if present.verdict == CHANGED:
                raise DriftError([present.change])
            if present.verdict == READY:
                texts[file] = text
        edited = self._edits.write(patch, root) if self._edits else set()
        return self._put(texts, root) | edited | self._take_out(patch, root)

    def _look(self, tree: Tree, file: str, text: str) -> Finding:
        present = tree.text(file)
        if present is None:
            return Finding(file, READY)
        if "\r\n" in present:
            return Finding(file, CHANGED, change=f"{file} {CRLF}")
        ours = imports.sort(text, tree.root)
        if code(present) == code(ours):
            return Finding(file, OURS)
        shown = differences(ours, present, file)
        if code(present, worded=False) == code(ours, worded=False):
            return Finding(file, REVIEWED, change=shown)
        return Finding(
            file, CHANGED, change=f"{file} exists already, and is not the file that this series adds\n{shown}"
        )

    def _put(self, texts: dict[str, str], root: pathlib.Path) -> set[str]:
        changed = {file: text for file, text in texts.items() if Tree(root).text(file) != text}
        for file, text in changed.items():
            check_syntax(file, text)
            path = root / file
            if not path.exists():
                check_names(file, text)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        return set(changed)

    def _take_out(self, patch: Patch, root: pathlib.Path) -> set[str]:
        changed = set()
        for file, name, must_exist in patch.removes:
            before = (root / file).read_text(encoding="utf-8")
            module = transplant.parse(before, file)
            if not must_exist and transplant.find(module, name) is None:
                continue
            text = finish(self.source, root, file, before, transplant.remove(module, name).code)
            (root / file).write_text(text, encoding="utf-8", newline="\n")
            changed.add(file)
        for file in python_files(root) if patch.removes else ():
            text = file.read_text(encoding="utf-8")
            for gone_from, name, _ in patch.removes:
                if _mentions(text, name):
                    user = file.relative_to(root).as_posix()
                    raise PatchError(f"{name} of {gone_from} cannot go: {user} still uses it")
        return changed


def _mentions(text: str, name: str) -> bool:
    # A method can only be reached through an attribute; a function also by its bare name or an import.
    is_method, last = "." in name, name.rpartition(".")[2]
    if last not in text:
        return False
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == last:
            return True
        if not is_method and isinstance(node, ast.Name) and node.id == last:
            return True
        if not is_method and isinstance(node, ast.ImportFrom) and any(alias.name == last for alias in node.names):
            return True
    return False
