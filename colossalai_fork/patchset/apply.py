"""Makes the series' commits on a branch of a ColossalAI checkout."""

from __future__ import annotations

import pathlib
import tempfile
from typing import TYPE_CHECKING

from . import stack
from .errors import PatchError
from .tree import Tree, git

if TYPE_CHECKING:
    from .edits import Edits
    from .functions.maker import Functions
    from .series import Series


def apply(
    series: Series, maker: Functions | Edits, tree: Tree, branch: str | None = None, signoff: bool | None = None
) -> tuple[str, list[stack.Commit]]:
    """Commit the series on a new branch and check it out.

    The commits are made in a scratch clone and fetched from there: the checkout does not change until all exist.

    Args:
        series (series.Series): the series.
        maker (functions.maker.Functions | edits.Edits): what makes its patches.
        tree (tree.Tree): a git checkout of ColossalAI.
        branch (str | None): the branch to make; the series' own name for it if None.
        signoff (bool | None): whether to sign the commits off; as git is configured if None.

    Returns:
        tuple[str, list[stack.Commit]]: the branch and its new commits.

    Raises:
        DriftError: if upstream's functions are not those that the series was written for.
        PatchError: if the tree is not a checkout, has uncommitted changes, such a branch, or the patches already, or if
            git does not know whose commits they would be.
    """
    branch = branch or series.branch
    if not tree.is_git:
        raise PatchError(
            f"{tree.root} is not a git checkout; use export, or make it one with git init and a first commit"
        )
    author = tree.author(signoff, now=True)
    uncommitted = tree.uncommitted()
    if uncommitted:
        raise PatchError("the checkout has uncommitted changes; commit or undo them first:\n" + "\n".join(uncommitted))
    if git(tree.root, "branch", "--list", branch).strip():
        raise PatchError(f"the checkout has a branch {branch} already; name another one with --branch")
    with tempfile.TemporaryDirectory(prefix="colossalai-patches-") as scratch:
        built = stack.build(series, maker, tree, pathlib.Path(scratch), author)
        root, commits = built.root, built.commits
        if not commits:
            raise PatchError("there is nothing to apply: this checkout has these patches already")
        _refuse_overwriting(tree, commits)
        git(tree.root, "fetch", "--quiet", "--no-tags", str(root), f"HEAD:refs/heads/{branch}")
    try:
        git(tree.root, "checkout", "--quiet", branch)
    except PatchError:
        git(tree.root, "branch", "--delete", "--force", branch)
        raise
    return branch, commits


def _refuse_overwriting(tree: Tree, commits: list[stack.Commit]) -> None:
    # Git overwrites ignored files without asking.
    tracked = set(git(tree.root, "ls-files", "-z").split("\0"))
    files = {file for commit in commits for file in commit.files} - tracked
    present = sorted(file for file in files if (tree.root / file).exists())
    if present:
        raise PatchError(f"git ignores {', '.join(present)}, which the series adds; move it away first")
