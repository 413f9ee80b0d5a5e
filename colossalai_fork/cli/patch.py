"""``colossalai-fork patch``: the fork's functions as commits for a ColossalAI source tree."""

import functools
import importlib.util

import click

EXTRA = "this command needs more packages: python -m pip install 'colossalai-fork[patch]'"

upstream_option = click.option(
    "--upstream",
    required=True,
    type=click.Path(exists=True, file_okay=False),
    help="ColossalAI's sources: a git checkout or an unpacked sdist.",
)


@click.group()
def patch():
    """Write the fork's functions as a series of commits for ColossalAI."""
    if any(importlib.util.find_spec(name) is None for name in ("libcst", "isort")):
        raise click.ClickException(EXTRA)


def _explained(command):
    @functools.wraps(command)
    def wrapped(*context, **arguments):
        from ..patchset.errors import PatchError

        try:
            return command(*context, **arguments)
        except PatchError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


@patch.command()
@upstream_option
@click.option("--output", required=True, type=click.Path(file_okay=False), help="Directory to write the files to.")
@click.option("--only", metavar="NAME", help="Write this patch alone (it is made on top of those before it).")
@_explained
def export(upstream, output, only):
    """Write NNNN-*.patch for git am, a text for each pull request, and a cover letter."""
    from ..patchset import project
    from ..patchset.export import export as write
    from ..patchset.tree import Tree

    files = write(project.series(), project.source(), Tree(upstream), output, only)
    for file in files:
        click.echo(file)
    # git am would otherwise take the "[checkpointio]" of the titles for a mailing list's decoration.
    click.echo(f"\nTo commit them: git am --keep-non-patch {output.rstrip('/')}/*.patch")


@patch.command()
@upstream_option
@click.option("--branch", metavar="NAME", help="The branch to make.")
@_explained
def apply(upstream, branch):
    """Make the commits on a new branch of a git checkout and check it out."""
    from ..patchset import project
    from ..patchset.apply import apply as make
    from ..patchset.tree import Tree

    name, commits = make(project.series(), project.source(), Tree(upstream), branch)
    for commit in commits:
        click.echo(f"{commit.id[:12]} {commit.patch.title}")
    click.echo(f"{len(commits)} commits on branch {name}")


@patch.command()
@upstream_option
@click.option(
    "--contract", is_flag=True, help="If functions changed, run the contract cases on the tree (takes minutes)."
)
@click.pass_context
@_explained
def check(ctx, upstream, contract):
    """Tell whether the series fits a source tree; exit with 1 if an upstream function is not one we know."""
    from ..patchset import project
    from ..patchset.check import check as look
    from ..patchset.contract import holds
    from ..patchset.tree import Tree

    series, tree = project.series(), Tree(upstream)
    report = look(series, project.source(), tree, (lambda: holds(tree, series)) if contract else None)
    click.echo(report.text)
    if not report.fits:
        ctx.exit(1)
