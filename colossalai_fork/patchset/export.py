"""Writes the series as files: one patch a commit for ``git am``, one text a pull request, and a cover letter."""

import pathlib
import string
import tempfile

from . import stack
from .errors import PatchError
from .tree import FALLBACK_IDENTITY, git

COVER = "0000-cover-letter.md"


def export(series, source, tree, output, only=None):
    """Write the series for one source tree.

    Args:
        series (series.Series): the series.
        source (source.Source): the fork's code.
        tree (tree.Tree): upstream's sources; they are not changed. For a checkout its last commit counts.
        output (pathlib.Path): the directory to write to; made if absent.
        only (str | None): name of the one patch to write; all if None. It is made on top of those before it.

    Returns:
        list[pathlib.Path]: the files written. Two runs on the same tree write the same bytes.

    Raises:
        DriftError: if upstream's functions are not those that the series was written for.
        PatchError: if there is nothing to write or the series cannot be made.
    """
    if only is not None and only not in [patch.name for patch in series.patches]:
        raise PatchError(f"the series has no patch {only!r}; it has {', '.join(p.name for p in series.patches)}")
    output = pathlib.Path(output)
    with tempfile.TemporaryDirectory(prefix="colossalai-patches-") as scratch:
        identity = tree.identity() or FALLBACK_IDENTITY
        root, commits = stack.build(series, source, tree, pathlib.Path(scratch), identity, series.date)
        _refuse_uncommitted(tree, commits)
        wanted = [commit for commit in commits if only in (None, commit.patch.name)]
        if not wanted:
            raise PatchError("there is nothing to export: this tree has these patches already")
        texts = {COVER: _cover(series, root, commits)}
        for commit in wanted:
            stem = f"{commit.patch.number:04d}-{slug(commit.patch.title)}"
            texts[f"{stem}.patch"] = format_patch(root, commit)
            texts[f"{stem}.md"] = pull_request(series, root, commit)
    output.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        output.joinpath(name).write_bytes(text.encode("utf-8"))
    return [output / name for name in sorted(texts)]


def format_patch(root, commit):
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


def sizes(root, commit):
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


def pull_request(series, root, commit):
    """Write the text of one pull request, in the form that upstream's template asks for.

    Args:
        series (series.Series): the series.
        root (pathlib.Path): the scratch repository.
        commit (stack.Commit): the commit.

    Returns:
        str: Markdown.
    """
    frame = string.Template(series.read("pull_request.md"))
    patch = commit.patch
    return frame.substitute(
        title=patch.title,
        issue=patch.issue,
        body=patch.request.strip(),
        size=size_line(sizes(root, commit)),
        place=f"{patch.number} of {len(series.patches)}",
    )


def slug(title):
    """Write a title as part of a file name, as git does."""
    kept = "".join(character if character.isalnum() else "-" for character in title)
    return "-".join(part for part in kept.split("-") if part)[:52].rstrip("-")


def _cover(series, root, commits):
    lines = ["| # | title | existing files | new modules | tests |", "| --- | --- | --- | --- | --- |"]
    for commit in commits:
        size = sizes(root, commit)
        cells = [f"+{size[kind][0]} −{size[kind][1]}" for kind in ("existing", "new", "tests")]
        lines.append(f"| {commit.patch.number} | {commit.patch.title} | {' | '.join(cells)} |")
    return string.Template(series.read("cover.md")).substitute(patches="\n".join(lines))


def size_line(size):
    """Write what :func:`sizes` counted."""
    return (
        f"+{size['existing'][0]} −{size['existing'][1]} lines in existing files, "
        f"{size['new'][0]} lines in new modules, {size['tests'][0]} lines of tests"
    )


def _refuse_uncommitted(tree, commits):
    # The patches are made from the last commit, so edits in files that they touch would be lost without a word.
    touched = {file for commit in commits for file in commit.files}
    edited = [line[3:] for line in tree.uncommitted() if line[3:].strip('"') in touched]
    if edited:
        raise PatchError(
            f"commit or undo the changes in {', '.join(edited)} first: patches are made from the last commit"
        )
