"""``colossalai-fork demo``: the fault in the installed ColossalAI and the fix, side by side."""

import importlib.util
import os

import click

from ..demo.schedule import Schedule

EXTRA = "this command needs more packages: python -m pip install 'colossalai-fork[demo]'"


@click.command()
@click.option(
    "--steps",
    type=click.IntRange(20, 10000),
    default=Schedule.steps,
    show_default=True,
    help="Steps of training after the checkpoint.",
)
@click.option(
    "--plot",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Draw the loss curves into FILE, for example curves.png, instead of the terminal.",
)
def demo(steps: int, file: str | None) -> None:
    """Show what ColossalAI's optimizer loaders leave behind, and that the fixed ones do not.

    First the smallest case: an empty checkpoint loaded over an optimizer that has been used. Then a training run on two
    processes, which goes back to an early checkpoint and on from there. Runs on CPU and takes less than a minute.

    Exit status: 0 if all that it claims held, 1 if not.
    """
    _check_what_it_needs(file)
    from rich.console import Console

    from ..demo.processes import ProcessFailed
    from ..demo.show import show

    try:
        held = show(Console(), steps, file)
    except ProcessFailed as error:
        raise click.ClickException(str(error)) from error
    if not held:
        raise SystemExit(1)


def _check_what_it_needs(file: str | None) -> None:
    # Before anything takes time.
    needed = ("sklearn", "matplotlib") if file else ("sklearn",)
    if any(importlib.util.find_spec(name) is None for name in needed):
        raise click.ClickException(EXTRA)
    if file:
        from ..demo.figure import suffixes

        directory, name = os.path.split(os.path.abspath(file))
        if not os.path.isdir(directory):
            raise click.BadParameter(f"there is no directory {directory}", param_hint="--plot")
        if os.path.splitext(name)[1].lower() not in suffixes():
            raise click.BadParameter(f"the suffix must be one of {', '.join(sorted(suffixes()))}", param_hint="--plot")
