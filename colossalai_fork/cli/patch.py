"""``colossalai-fork patch``: this project's changes as commits for a ColossalAI source tree."""

from __future__ import annotations

import functools
import importlib.util
import shlex
from typing import TYPE_CHECKING, Any, Callable

import click

if TYPE_CHECKING:
    from ..patchset.edits import Edits
    from ..patchset.functions.maker import Functions
    from ..patchset.series import Series
    from ..patchset.tree import Tree

EXTRA = "this command needs more packages: python -m pip install 'colossalai-fork[patch]'"

series_option = click.option(
    "--series",
    "name",
    type=click.Choice(["fix", "contract"]),
    default="fix",
    show_default=True,
    help="fix: small edits of ColossalAI's loaders. contract: loaders that hold the whole contract.",
)
upstream_option = click.option(
    "--upstream",
    required=True,
    type=click.Path(exists=True, file_okay=False),
    help="ColossalAI's sources: a git checkout or an unpacked sdist.",
)
signoff_option = click.option(
    "--signoff/--no-signoff", default=None, help="Sign the commits off; by default as git's format.signOff says."
)


@click.group()
def patch() -> None:
    """Write this project's changes as a series of commits for ColossalAI.

    Author, committer, date and sign-off are those of git's configuration and of its environment variables
    (GIT_AUTHOR_NAME, GIT_AUTHOR_DATE, ...).
    """
    if any(importlib.util.find_spec(package) is None for package in ("libcst", "isort")):
        raise click.ClickException(EXTRA)


def _explained(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def wrapped(*context: click.Context, **arguments: Any) -> None:
        from ..patchset.errors import PatchError

        try:
            return command(*context, **arguments)
        except PatchError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


def _read(name: str, upstream: str) -> tuple[Series, Functions | Edits, Tree]:
    from ..patchset import project
    from ..patchset.tree import Tree

    series = project.series(name)
    return series, project.maker(series), Tree(upstream)


@patch.command()
@series_option
@upstream_option
@click.option("--output", required=True, type=click.Path(file_okay=False), help="Directory to write the files to.")
@click.option("--only", metavar="NAME", help="Write this patch alone (it is made on top of those that it needs).")
@signoff_option
@_explained
def export(name: str, upstream: str, output: str, only: str | None, signoff: bool | None) -> None:
    """Write NNNN-*.patch for git am, a text for each pull request, and a cover letter."""
    from ..patchset.export import export as write

    files = write(*_read(name, upstream), output, only, signoff)
    for file in files:
        click.echo(file)
    # git am would otherwise take the "[checkpointio]" of the titles for a mailing list's decoration.
    patches = [str(file.resolve()) for file in files if file.suffix == ".patch"]
    click.echo(f"\nTo commit them: {shlex.join(['git', 'am', '--keep-non-patch', *patches])}")


@patch.command()
@series_option
@upstream_option
@click.option("--branch", metavar="NAME", help="The branch to make.")
@signoff_option
@_explained
def apply(name: str, upstream: str, branch: str | None, signoff: bool | None) -> None:
    """Make the commits on a new branch of a git checkout and check it out."""
    from ..patchset.apply import apply as make

    branch, commits = make(*_read(name, upstream), branch, signoff)
    for commit in commits:
        click.echo(f"{commit.id[:12]} {commit.patch.title}")
    click.echo(f"{len(commits)} commits on branch {branch}")


@patch.command()
@series_option
@upstream_option
@click.option(
    "--contract", is_flag=True, help="If functions changed, run the contract cases on the tree (takes minutes)."
)
@click.pass_context
@_explained
def check(ctx: click.Context, name: str, upstream: str, contract: bool) -> None:
    """Tell whether the series fits a source tree, and which of its patches are in already.

    Exit status: 0 if export would write it, or if nothing is left to write; 1 if something stands in the way.
    """
    from ..patchset.check import check as look
    from ..patchset.gate import holds

    series, maker, tree = _read(name, upstream)
    report = look(series, maker, tree, (lambda: holds(tree, series)) if contract else None)
    click.echo(report.text)
    if not report.fits:
        ctx.exit(1)
