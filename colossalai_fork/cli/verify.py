"""``colossalai-fork verify``: whether a checkpoint can be trusted, before hundreds of processes load it."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Callable, Iterator

import click

if TYPE_CHECKING:
    from ..checkpoint_io.optimizer_restore.errors import Problem
    from ..checkpoints.opened import Checkpoint


@click.command()
@click.argument("checkpoint", type=click.Path(exists=True))
@click.option("--full", is_flag=True, help="Read all bytes: checksums, NaN and infinity.")
@click.option(
    "--against", type=click.Path(exists=True), metavar="CHECKPOINT", help="List what differs from another one."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(checkpoint: str, full: bool, against: str | None, as_json: bool) -> None:
    """Check everything about a checkpoint that needs no optimizer, and list all that is wrong. Runs no code from it.

    Without an option, headers are read: files, index, groups, ids, shapes, and sizes if there is a manifest. With --full also
    every byte: the checksums that torch writes into its files, those of the manifest, NaN and infinity in every state. With
    --against, groups, entries and every bit of their tensors are compared with another checkpoint's.

    Exit status: 0 if nothing is wrong, 1 if something is, 2 if that could not be found out.
    """
    # Not at the top: torch takes seconds to import, and the other commands need not wait for it.
    from ..checkpoints.opened import Checkpoint
    from ..checkpoints.summary import problem_as_data
    from .inspect import or_exit_status_2, print_problems

    with or_exit_status_2():
        opened = Checkpoint(checkpoint)
        problems = _problems(opened, full, against)
    if as_json:
        manifest = opened.saved.manifest and opened.saved.manifest.path
        found = {"checkpoint": checkpoint, "full": full, "against": against, "manifest": manifest}
        found.update(sound=not problems, problems=[problem_as_data(problem) for problem in problems])
        click.echo(json.dumps(found, indent=2))
    else:
        print_problems(problems, _said(opened, full, against))
    raise SystemExit(1 if problems else 0)


def _problems(opened: Checkpoint, full: bool, against: str | None) -> list[Problem]:
    from ..checkpoints.comparison import differences
    from ..checkpoints.contents import problems_in_contents
    from ..checkpoints.opened import Checkpoint

    problems = list(opened.problems)
    if full:
        with progress("reading", size_of(opened)) as advance:
            problems += problems_in_contents(opened, advance)
    if against is not None:
        other = Checkpoint(against)
        if other.problems:
            raise click.UsageError(f"there is nothing to compare with, because of {against}: {other.problems[0]}")
        with progress("comparing", size_of(opened) + size_of(other)) as advance:
            problems += differences(opened, other, advance)
    return problems


def _said(opened: Checkpoint, full: bool, against: str | None) -> str:
    parameters = len({param_id for group in opened.groups for param_id in group["params"]})
    read = f"{size_of(opened):,} bytes" if full else "headers"
    manifest = "with a manifest" if opened.saved.manifest else "without a manifest"
    same = f" It does not differ from {against}." if against else ""
    files = len(opened.saved.files)
    return (
        f"Nothing is wrong: {files} file{'' if files == 1 else 's'}, {parameters} parameters, {read}, {manifest}.{same}"
    )


def size_of(opened: Checkpoint) -> int:
    """Return the number of bytes in the files of a checkpoint.

    Args:
        opened (Checkpoint): the checkpoint.
    """
    return sum(os.path.getsize(path) for path in opened.saved.files if os.path.isfile(path))


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show bytes, rate and time left on a terminal, and nothing elsewhere.

    Args:
        what (str): what is going on.
        total (int): how many bytes there are.

    Yields:
        Callable[[int], None]: to be told how many bytes more are done.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=total)
        yield lambda count: shown.advance(task, count)
