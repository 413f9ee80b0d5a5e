"""Makes the commits of a series in a scratch repository."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Iterator

from .errors import DriftError, PatchError
from .finding import CHANGED, READY, Finding
from .functions.source import FORK
from .text import imports
from .text.python_floor import check_syntax
from .text.wording import code
from .tree import Author, Tree, commit, git

if TYPE_CHECKING:
    from .edits import Edits
    from .functions.maker import Functions
    from .series import Patch, Series


@dataclasses.dataclass(frozen=True)
class State:
    """How a tree stands to one patch.

    Args:
        patch (series.Patch): the patch.
        findings (list[Finding]): what its places look like.
        merged (bool): whether the tree's history has a commit of its title.
    """

    patch: Patch
    findings: list[Finding]
    merged: bool

    @property
    def is_in(self) -> bool:
        """bool: whether the tree has the patch, in these words or as a review has left it."""
        if not self.findings:
            return self.merged
        # A commit of that title whose code is not here has been reverted.
        here = self.merged and not all(finding.verdict == READY for finding in self.findings)
        return here or all(finding.is_in for finding in self.findings)

    @property
    def changes(self) -> list[str]:
        """list[str]: what stands in the way of the patch."""
        return [] if self.is_in else [finding.change for finding in self.findings if finding.verdict == CHANGED]


@dataclasses.dataclass(frozen=True)
class Commit:
    """One patch, committed.

    Args:
        patch (series.Patch): the patch.
        id (str): the commit.
        files (list[str]): what it touches.
    """

    patch: Patch
    id: str
    files: list[str]


@dataclasses.dataclass(frozen=True)
class Stack:
    """A series on top of a tree.

    Args:
        root (pathlib.Path): the scratch repository.
        states (list[State]): how the tree stood to each patch.
        commits (list[Commit]): the new commits, in order.
    """

    root: pathlib.Path
    states: list[State]
    commits: list[Commit]


def look(series: Series, maker: Functions | Edits, root: pathlib.Path) -> list[State]:
    """Compare a tree with every patch of a series.

    Args:
        series (series.Series): the series.
        maker (functions.maker.Functions | edits.Edits): what makes its patches.
        root (pathlib.Path): the tree.

    Returns:
        list[State]: one for each patch.
    """
    tree, states = Tree(root), []
    subjects = tree.subjects()
    for patch in series.patches:
        merged = any(subject.partition(" (#")[0] == patch.title for subject in subjects)
        states.append(State(patch, maker.survey(patch, tree), merged))
        if not states[-1].is_in:
            states[-1].findings.extend(_other_tests(tree, patch))
    return states


def build(
    series: Series,
    maker: Functions | Edits,
    tree: Tree,
    scratch: pathlib.Path,
    author: Author,
    only: str | None = None,
    looked: tuple[pathlib.Path, list[State]] | None = None,
) -> Stack:
    """Commit every patch that the tree does not have yet.

    Args:
        series (series.Series): the series.
        maker (functions.maker.Functions | edits.Edits): what makes its patches.
        tree (tree.Tree): upstream's sources. For a checkout its last commit counts.
        scratch (pathlib.Path): an empty directory.
        author (tree.Author): whose commits they are.
        only (str | None): commit this patch and those that it needs; all if None.
        looked (tuple[pathlib.Path, list[State]] | None): a copy of the tree that lies in the directory already, and what
            :func:`look` has found in it.

    Returns:
        Stack: the commits.

    Raises:
        DriftError: if upstream's functions are not those that the series was written for.
        PatchError: if a patch cannot be made for another reason.
    """
    maker.check()
    if looked is None:
        root = tree.copy(scratch)
        looked = root, look(series, maker, root)
    root, states = looked
    wanted = [state for state in states if only is None or state.patch.name in series.needed(only)]
    changes = [change for state in wanted for change in state.changes]
    if changes:
        raise DriftError(list(dict.fromkeys(changes)))
    commits = []
    for state in wanted:
        if state.is_in:
            continue
        patch = state.patch
        files = sorted(maker.write(patch, root) | _write_tests(patch, root))
        message = f"{patch.title}\n\n{patch.message}"
        git(root, "add", "--force", "--", *files, isolated=True)
        commits.append(Commit(patch, commit(root, message, author), files))
    _refuse_uncommitted(tree, commits)
    return Stack(root, states, commits)


def _test_text(template: pathlib.Path, root: pathlib.Path) -> str:
    text = imports.sort(template.read_text(encoding="utf-8"), root)
    if FORK in text or FORK.replace("_", "-") in text:
        raise PatchError(f"{template.name} would name the fork upstream")
    return text


def _other_tests(tree: Tree, patch: Patch) -> Iterator[Finding]:
    for file, template in patch.tests.items():
        present = tree.text(file)
        if present is not None and code(present) != code(_test_text(template, tree.root)):
            yield Finding(file, CHANGED, change=f"{file} exists already, and is not the file that this series adds")
        else:
            yield Finding(file, READY)


def _write_tests(patch: Patch, root: pathlib.Path) -> set[str]:
    for file, template in patch.tests.items():
        text = _test_text(template, root)
        check_syntax(file, text)
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8", newline="\n")
    return set(patch.tests)


def _refuse_uncommitted(tree: Tree, commits: list[Commit]) -> None:
    # The patches are made from the last commit, so edits in files that they touch would be lost without a word.
    touched = {file for commit in commits for file in commit.files}
    edited = [file for file in tree.uncommitted() if file in touched]
    if edited:
        raise PatchError(
            f"commit or undo the changes in {', '.join(edited)} first: patches are made from the last commit"
        )
