"""A ColossalAI source tree, git checkout or unpacked sdist, that is read and never written, and a scratch copy of
it."""

import os
import pathlib
import shutil
import subprocess

from .errors import PatchError

# Commits made where nobody is configured, and the base commit of an sdist, which has no history of its own.
FALLBACK_IDENTITY = ("ColossalAI contributor", "contributor@example.com")


def git(root, *arguments, isolated=False, env=None):
    """Run git.

    Args:
        root (pathlib.Path): the repository.
        *arguments (str): the command line behind ``git``.
        isolated (bool): whether to keep the user's and the machine's git settings out of the result.
        env (dict[str, str] | None): more environment variables.

    Returns:
        str: what it printed.

    Raises:
        PatchError: if it fails.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment.update({"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"})
    if isolated:
        environment.update({"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "TZ": "UTC"})
    else:
        kept = ("GIT_CONFIG", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSH", "GIT_ASKPASS")
        environment.update({key: value for key, value in os.environ.items() if key.startswith(kept)})
    environment.update(env or {})
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], env=environment, capture_output=True, text=True, encoding="utf-8"
        )
    except FileNotFoundError as error:
        raise PatchError("git is not installed") from error
    if done.returncode:
        raise PatchError(f"git {arguments[0]} failed in {root}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


class Tree:
    """A source tree of ColossalAI.

    Args:
        root (str | pathlib.Path): its outermost directory.

    Raises:
        PatchError: if that directory does not hold ColossalAI's sources.
    """

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        if not (self.root / "colossalai" / "checkpoint_io").is_dir():
            raise PatchError(f"{self.root} holds no ColossalAI sources (no colossalai/checkpoint_io)")
        self.is_git = (self.root / ".git").exists()

    def text(self, file):
        """Read a file as it lies in the tree.

        Args:
            file (str): path relative to the root.

        Returns:
            str | None: its text; None if there is no such file.
        """
        path = self.root / file
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def earlier_texts(self, file, limit=200):
        """Read a file as its commits had it.

        Args:
            file (str): path relative to the root.
            limit (int): how many commits to go back.

        Yields:
            tuple[str, str]: abbreviated commit and text, the newest first.
        """
        if not self.is_git:
            return
        for commit in git(self.root, "log", f"--max-count={limit}", "--format=%h", "HEAD", "--", file).split():
            try:
                yield commit, git(self.root, "show", f"{commit}:{file}")
            except PatchError:
                continue

    def uncommitted(self):
        """List what differs from the last commit.

        Returns:
            list[str]: lines of ``git status``, untracked files included; empty for an sdist.
        """
        return git(self.root, "status", "--porcelain").splitlines() if self.is_git else []

    def identity(self):
        """Tell whom git would name as the author of a commit here.

        Returns:
            tuple[str, str] | None: name and e-mail address; None if they are not configured.
        """
        found = []
        for key in ("user.name", "user.email"):
            try:
                found.append(git(self.root, "config", key).strip())
            except PatchError:
                return None
        return tuple(found)

    def copy(self, scratch):
        """Make a repository of its own whose last commit is the tree's.

        Args:
            scratch (pathlib.Path): an empty directory.

        Returns:
            pathlib.Path: root of the copy, with everything checked out.
        """
        root = pathlib.Path(scratch) / "colossalai"
        if self.is_git:
            # The user's settings matter for reading from the checkout, and for nothing afterwards.
            git(self.root, "clone", "--quiet", "--shared", "--no-checkout", "--template=", str(self.root), str(root))
            git(root, "checkout", "--quiet", "--detach", git(self.root, "rev-parse", "HEAD").strip(), isolated=True)
            return root
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so")
        shutil.copytree(self.root, root, symlinks=True, ignore=ignore)
        git(root, "init", "--quiet", "--template=", isolated=True)
        git(root, "add", "--all", "--force", isolated=True)
        commit(root, "Released sources\n", identity=FALLBACK_IDENTITY, date="2000-01-01T00:00:00Z")
        return root


def commit(root, message, identity, date=None):
    """Commit what is staged in a scratch repository.

    Args:
        root (pathlib.Path): the repository.
        message (str): the whole commit message.
        identity (tuple[str, str]): name and e-mail address of author and committer.
        date (str | None): author's and committer's date; now if None.

    Returns:
        str: the new commit.
    """
    env = {}
    for role in ("AUTHOR", "COMMITTER"):
        env[f"GIT_{role}_NAME"], env[f"GIT_{role}_EMAIL"] = identity
        if date is not None:
            env[f"GIT_{role}_DATE"] = date
    git(root, "commit", "--quiet", "--no-verify", "--cleanup=verbatim", "-m", message, isolated=True, env=env)
    return git(root, "rev-parse", "HEAD", isolated=True).strip()
