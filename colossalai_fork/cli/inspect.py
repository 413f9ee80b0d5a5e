"""``colossalai-fork inspect``: what an optimizer checkpoint holds, and whether it is sound."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from typing import TYPE_CHECKING, Any, Iterator

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..checkpoint_io.optimizer_restore.errors import Problem


@contextlib.contextmanager
def or_exit_status_2() -> Iterator[None]:
    """End the process with 2 if anything unexpected happens: 1 is for what is known to be wrong."""
    from ..checkpoint_io.optimizer_restore.files.sources import UnreadableFileError

    try:
        yield
    except UnreadableFileError as error:
        raise click.UsageError(f"{error.file}: {error}")
    except (click.ClickException, SystemExit):
        raise
    except BaseException:
        traceback.print_exc()
        raise SystemExit(2)


@click.command()
@click.argument("checkpoint", type=click.Path(exists=True))
@click.option("--param", "param_id", type=int, metavar="ID", help="Show what is saved for one parameter.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(checkpoint: str, param_id: int | None, as_json: bool) -> None:
    """Show what an optimizer checkpoint holds. Runs no code from it, and reads no more of its tensors than their shapes.

    CHECKPOINT is a directory, an index file, or a file that holds the whole state.

    Exit status: 0 if it is sound, 1 if no optimizer could load it, 2 if there is no such checkpoint or parameter.
    """
    # Not at the top: torch takes seconds to import, and the other commands need not wait for it.
    from ..checkpoints.opened import Checkpoint
    from ..checkpoints.summary import of_parameter, summary

    with or_exit_status_2():
        opened = Checkpoint(checkpoint)
        found = summary(opened) if param_id is None else of_parameter(opened, param_id)
    if found is None:
        raise click.UsageError(f"the checkpoint has no parameter {param_id}")
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif param_id is None:
        _print_summary(found, opened.problems)
    else:
        _print_parameter(found, opened.problems)
    raise SystemExit(1 if found["problems"] else 0)


def print_problems(problems: list[Problem], sound: str = "The checkpoint is sound.") -> None:
    """Print problems as a list, and how many they are.

    Args:
        problems (list[Problem]): the problems.
        sound (str): what to print if there are none.
    """
    console = _console()
    for problem in problems:
        console.print(f"- {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}" if problems else sound)


def _print_summary(found: dict[str, Any], problems: list[Problem]) -> None:
    console = _console()
    rows = [(file["name"], file["role"], _number(file["bytes"]), _number(file["ids"], "")) for file in found["files"]]
    console.print(_table("files", ("file", "holds", "bytes", "ids"), rows))
    rows = [
        (
            str(position),
            str(group["parameters"]),
            ", ".join(f"{key}={value!r}" for key, value in group["settings"].items()),
        )
        for position, group in enumerate(found["groups"])
    ]
    console.print(_table("parameter groups", ("group", "parameters", "settings"), rows))
    rows = [(kind["key"], kind["kind"], str(kind["parameters"]), _number(kind["bytes"])) for kind in found["states"]]
    console.print(_table("states", ("name", "kind", "parameters", "bytes"), rows))
    print_problems(problems)


def _print_parameter(found: dict[str, Any], problems: list[Problem]) -> None:
    from ..checkpoint_io.optimizer_restore.errors import shown

    name = f" ({found['name']})" if found["name"] else ""
    title = f"parameter {found['id']}{name}, group {found['group']}, {found['file'] or 'without state'}"
    rows = [
        (value["key"], value["kind"], str(tuple(value["shape"])) if "shape" in value else repr(value["value"]))
        for value in found["state"]
    ]
    console = _console()
    console.print(shown(title, limit=10_000), markup=False, highlight=False, soft_wrap=True)
    console.print(_table(None, ("name", "kind", "shape or value"), rows))
    print_problems([problem for problem in problems if problem.param_id == found["id"]], "No problem with it.")


def _console() -> Console:
    from rich.console import Console

    # A terminal that knows few characters is shown the others as numbers.
    sys.stdout.reconfigure(errors="backslashreplace")
    return Console()


def _table(title: str | None, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from ..checkpoint_io.optimizer_restore.errors import shown

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for column in columns:
        numbers = column in ("bytes", "ids", "parameters")
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        # Names and values come out of the file: nothing of them may steer the terminal.
        table.add_row(*(Text(shown(str(cell), limit=10_000)) for cell in row))
    return table


def _number(value: int | None, absent: str = "missing") -> str:
    return absent if value is None else f"{value:,}"
