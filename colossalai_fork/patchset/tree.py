"""A ColossalAI source tree, git checkout or unpacked sdist, that is read and never written, and a scratch copy of
it."""

import dataclasses
import datetime
import os
import pathlib
import re
import shutil
import subprocess
from typing import Iterator

from .errors import PatchError


@dataclasses.dataclass(frozen=True)
class Author:
    """Whose commits they are.

    Args:
        author (tuple[str, str]): name and e-mail address of the author.
        committer (tuple[str, str]): those of the committer.
        date (str): the author's date.
        signoff (bool): whether the committer signs the commits off.
    """

    author: tuple[str, str]
    committer: tuple[str, str]
    date: str
    signoff: bool = False


# Commits that nobody will see: the base of an sdist, which has no history of its own, and those of a check.
NOBODY = Author(*[("nobody", "nobody@example.com")] * 2, "2000-01-01T00:00:00+00:00")


def git(root: pathlib.Path, *arguments: str, isolated: bool = False, env: dict[str, str] | None = None) -> str:
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

    def __init__(self, root: str | pathlib.Path) -> None:
        self.root = pathlib.Path(root).resolve()
        if not (self.root / "colossalai" / "checkpoint_io").is_dir():
            raise PatchError(f"{self.root} holds no ColossalAI sources (no colossalai/checkpoint_io)")
        self.is_git = (self.root / ".git").exists()

    def text(self, file: str) -> str | None:
        """Read a file as it lies in the tree.

        Args:
            file (str): path relative to the root.

        Returns:
            str | None: its text; None if there is no such file.
        """
        path = self.root / file
        # With its line ends as they are.
        return path.read_bytes().decode("utf-8") if path.is_file() else None

    def earlier_texts(self, file: str, limit: int = 200) -> Iterator[tuple[str, str]]:
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

    def subjects(self, limit: int = 2000) -> set[str]:
        """List the subjects of the latest commits.

        Args:
            limit (int): how many commits to go back.

        Returns:
            set[str]: the subjects; empty for an sdist.
        """
        if not self.is_git:
            return set()
        return set(git(self.root, "log", f"--max-count={limit}", "--format=%s").splitlines())

    def uncommitted(self) -> list[str]:
        """List the files that differ from the last commit.

        Returns:
            list[str]: paths, those of untracked files included; empty for an sdist.
        """
        if not self.is_git:
            return []
        entries = iter(git(self.root, "status", "--porcelain", "-z").split("\0"))
        files = []
        for entry in entries:
            if entry:
                files.append(entry[3:])
                if entry[0] in "RC":
                    files.append(next(entries))
        return files

    def author(self, signoff: bool | None = None, now: bool = False) -> Author:
        """Tell whom git would name as the author of a commit here.

        Args:
            signoff (bool | None): whether to sign the commits off; as git is configured if None.
            now (bool): whether commits without a date in the environment bear the present one, as git would have it.
                Otherwise they bear that of the commit that they follow, so that they are the same whenever they are made.

        Returns:
            Author: the author.

        Raises:
            PatchError: if git knows nobody, or the date lies before that of the commit that is to be followed.
        """
        author, date = self._identity("AUTHOR")
        committer, _ = self._identity("COMMITTER")
        earliest = self._date()
        if not os.environ.get("GIT_AUTHOR_DATE"):
            date = max(date, earliest) if now else earliest
        elif date < earliest:
            raise PatchError(
                f"GIT_AUTHOR_DATE is {date.isoformat()}, before the last commit here ({earliest.isoformat()})"
            )
        if signoff is None:
            signoff = self._config("--type=bool", "format.signOff") == "true"
        return Author(author, committer, date.isoformat(), signoff)

    def _identity(self, role: str) -> tuple[tuple[str, str], datetime.datetime]:
        try:
            found = git(self.root, "-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT").strip()
        except PatchError as error:
            raise PatchError(
                "git does not know whose commits these are: set user.name and user.email, or GIT_AUTHOR_NAME, "
                "GIT_AUTHOR_EMAIL, GIT_COMMITTER_NAME and GIT_COMMITTER_EMAIL"
            ) from error
        name, email, seconds, zone = re.fullmatch(r"(.*) <(.*)> (\d+) ([+-]\d{4})", found).groups()
        offset = datetime.datetime.strptime(zone, "%z").tzinfo
        return (name, email), datetime.datetime.fromtimestamp(int(seconds), offset)

    def _date(self) -> datetime.datetime:
        if self.is_git:
            dates = git(self.root, "log", "-1", "--format=%aI%n%cI").split()
            return max(datetime.datetime.fromisoformat(date.replace("Z", "+00:00")) for date in dates)
        newest = max(path.stat().st_mtime for path in (self.root / "colossalai").rglob("*.py"))
        return datetime.datetime.fromtimestamp(int(newest), datetime.timezone.utc)

    def _config(self, *arguments: str) -> str | None:
        try:
            return git(self.root, "config", *arguments).strip()
        except PatchError:
            return None

    def copy(self, scratch: pathlib.Path) -> pathlib.Path:
        """Make a repository of its own whose last commit is the tree's.

        Args:
            scratch (pathlib.Path): an empty directory; made if absent.

        Returns:
            pathlib.Path: root of the copy, with everything checked out.
        """
        root = pathlib.Path(scratch) / "colossalai"
        root.parent.mkdir(parents=True, exist_ok=True)
        if self.is_git:
            # The user's settings matter for reading from the checkout, and for nothing afterwards.
            git(self.root, "clone", "--quiet", "--shared", "--no-checkout", "--template=", str(self.root), str(root))
            git(root, "checkout", "--quiet", "--detach", git(self.root, "rev-parse", "HEAD").strip(), isolated=True)
            return root
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so")
        shutil.copytree(self.root, root, symlinks=True, ignore=ignore)
        git(root, "init", "--quiet", "--template=", isolated=True)
        git(root, "add", "--all", "--force", isolated=True)
        commit(root, "Released sources\n", NOBODY)
        return root


def commit(root: pathlib.Path, message: str, author: Author) -> str:
    """Commit what is staged in a scratch repository.

    Args:
        root (pathlib.Path): the repository.
        message (str): the whole commit message.
        author (Author): whose commit it is.

    Returns:
        str: the new commit.
    """
    env = {"GIT_AUTHOR_DATE": author.date, "GIT_COMMITTER_DATE": author.date}
    for role, identity in (("AUTHOR", author.author), ("COMMITTER", author.committer)):
        env[f"GIT_{role}_NAME"], env[f"GIT_{role}_EMAIL"] = identity
    options = ("--quiet", "--no-verify", "--cleanup=verbatim", *(["--signoff"] if author.signoff else []))
    git(root, "commit", *options, "-m", message, isolated=True, env=env)
    return git(root, "rev-parse", "HEAD", isolated=True).strip()
