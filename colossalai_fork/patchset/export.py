"""Writes the series as files: one patch a commit for ``git am``, one text a pull request, and a cover letter."""

from __future__ import annotations

import pathlib
import string
import tempfile
from typing import TYPE_CHECKING

from . import stack
from .errors import PatchError
from .text.modules import slug
from .tree import Tree, git

if TYPE_CHECKING:
    from .edits import Edits
    from .functions.maker import Functions
    from .series import Patch, Series

COVER = "0000-cover-letter.md"


def export(
    series: Series,
    maker: Functions | Edits,
    tree: Tree,
    output: str | pathlib.Path,
    only: str | None = None,
    signoff: bool | None = None,
) -> list[pathlib.Path]:
    """Write the series for one source tree.

    Args:
        series (series.Series): the series.
        maker (functions.maker.Functions | edits.Edits): what makes its patches.
        tree (tree.Tree): upstream's sources; they are not changed. For a checkout its last commit counts.
        output (str | pathlib.Path): the directory to write to; made if absent.
        only (str | None): name of the one patch to write; all if None. It is made on top of those that it needs.
        signoff (bool | None): whether to sign the commits off; as git is configured if None.

    Returns:
        list[pathlib.Path]: the files written. Two runs on the same tree write the same bytes.

    Raises:
        DriftError: if upstream's functions are not those that the series was written for.
        PatchError: if there is nothing to write, if the series cannot be made, or if git does not know whose it is.
    """
    if only is not None and only not in [patch.name for patch in series.patches]:
        raise PatchError(f"the series has no patch {only!r}; it has {', '.join(p.name for p in series.patches)}")
    output = pathlib.Path(output)
    author = tree.author(signoff)
    with tempfile.TemporaryDirectory(prefix="colossalai-patches-") as scratch:
        built = stack.build(series, maker, tree, pathlib.Path(scratch), author, only)
        wanted = [commit for commit in built.commits if only in (None, commit.patch.name)]
        if not wanted:
            raise PatchError("there is nothing to export: this tree has these patches already")
        texts = {COVER: _cover(series, built, wanted)}
        for commit in wanted:
            stem = f"{commit.patch.number:04d}-{slug(commit.patch.title)}"
            texts[f"{stem}.patch"] = format_patch(built.root, commit)
            texts[f"{stem}.md"] = pull_request(series, built.root, commit)
    output.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        output.joinpath(name).write_bytes(text.encode("utf-8"))
    return [output / name for name in sorted(texts)]


def format_patch(root: pathlib.Path, commit: stack.Commit) -> str:
    """Write one commit for ``git am``.

    Args:
        root (pathlib.Path): the scratch repository.
        commit (stack.Commit): the commit.

    Returns:
        str: the patch: three lines of context, full index, no signature, no hash of the commit itself.
    """
    options = (
        "--stdout",
        "--unified=3",
        "--full-index",
        "--no-signature",
        "--zero-commit",
        "--no-renames",
        "--no-numbered",
    )
    return git(root, "format-patch", "-1", *options, commit.id, isolated=True)


def sizes(root: pathlib.Path, commit: stack.Commit) -> dict[str, tuple[int, int]]:
    """Count the lines that a commit adds and removes.

    Args:
        root (pathlib.Path): the scratch repository.
        commit (stack.Commit): the commit.

    Returns:
        dict[str, tuple[int, int]]: added and removed lines in ``existing`` files, ``new`` modules and ``tests``.
    """
    found = {"existing": (0, 0), "new": (0, 0), "tests": (0, 0)}
    new = git(root, "diff", "--name-only", "--diff-filter=A", f"{commit.id}~", commit.id, isolated=True).split()
    for line in git(root, "diff", "--numstat", "--no-renames", f"{commit.id}~", commit.id, isolated=True).splitlines():
        added, removed, file = line.split("\t")
        kind = "tests" if file.startswith("tests/") else "new" if file in new else "existing"
        found[kind] = (found[kind][0] + int(added), found[kind][1] + int(removed))
    return found


def pull_request(series: Series, root: pathlib.Path, commit: stack.Commit) -> str:
    """Write the text of one pull request, in the form that upstream's template asks for.

    Args:
        series (series.Series): the series.
        root (pathlib.Path): the scratch repository.
        commit (stack.Commit): the commit.

    Returns:
        str: Markdown.
    """
    patch = commit.patch
    return string.Template(series.read("pull_request.md")).substitute(
        title=patch.title,
        issue=patch.issue,
        body=patch.request.strip(),
        points=series.points.table(patch),
        needs=_needs(series, patch),
        tests=" ".join(sorted(patch.tests)),
        size=size_line(sizes(root, commit)),
        place=f"{patch.number} of {len(series.patches)}",
    )


def size_line(size: dict[str, tuple[int, int]]) -> str:
    """Write what :func:`sizes` counted."""
    parts = [f"+{size['existing'][0]} −{size['existing'][1]} lines in existing files"]
    parts += [f"{size['new'][0]} lines in new modules"] if size["new"][0] else []
    return ", ".join([*parts, f"+{size['tests'][0]} −{size['tests'][1]} lines of tests"])


def _needs(series: Series, patch: Patch) -> str:
    if patch.needs is None and patch.number > 1:
        return (
            f"Builds on the {patch.number - 1} patches before it." if patch.number > 2 else "Builds on the first patch."
        )
    titles = [each.title for each in series.patches if each.name in series.needed(patch.name) and each is not patch]
    return "Needs " + " and ".join(f"`{title}`" for title in titles) + "." if titles else "Stands alone."


def _cover(series: Series, built: stack.Stack, wanted: list[stack.Commit]) -> str:
    lines = ["| # | title | existing files | new modules | tests |", "| --- | --- | --- | --- | --- |"]
    for commit in wanted:
        size = sizes(built.root, commit)
        cells = [f"+{size[kind][0]} −{size[kind][1]}" for kind in ("existing", "new", "tests")]
        lines.append(f"| {commit.patch.number} | {commit.patch.title} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    if len(wanted) == len(series.patches):
        return string.Template(series.read("cover.md")).substitute(patches=table)
    notes = []
    for state in built.states:
        if all(commit.patch is not state.patch for commit in wanted):
            where = "is in the tree already" if state.is_in else "is not in this export"
            notes.append(f"- `{state.patch.title}` {where}.")
    texts = [f"## {commit.patch.title}\n\n{commit.patch.request.strip()}" for commit in wanted]
    head = f"# {len(wanted)} of the {len(series.patches)} patches of a series"
    return "\n\n".join([head, table, "\n".join(notes), *texts]) + "\n"
