"""``colossalai-fork status``: which functions of the installed ColossalAI are its own, and which are ours."""

import importlib.metadata
import itertools

import click


@click.command()
def status():
    """Tell whether the overlay fits the installed ColossalAI.

    Exit status: 0 if apply() would work (or has nothing to do), 1 if it would refuse.
    """
    # Not at the top: colossalai takes seconds to import, and the other commands need not wait for it.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    import colossalai_fork
    from colossalai_fork.overlay.inspection import State

    console = Console()
    rows = colossalai_fork.status()
    styles = {State.ORIGINAL: "yellow", State.REPLACED: "green", State.ALREADY_FIXED: "green"}
    title = f"colossalai {_version('colossalai')}, torch {_version('torch')}"
    table = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("state", no_wrap=True)
    table.add_column("function", overflow="fold")
    for file, group in itertools.groupby(rows, key=lambda row: row.file):
        table.add_row("", Text(file, "bold"))
        for row in group:
            detail = f", {row.detail}" if row.state is State.ORIGINAL else ""
            table.add_row(Text(f"{row.state}{detail}", styles.get(row.state, "red")), row.symbol.partition(":")[2])
        table.add_section()
    console.print(table)

    refused = [row for row in rows if row.state in (State.UNKNOWN, State.MISSING)]
    for row in refused:
        console.print(f"\n{row.symbol} is {row.state}", style="red", markup=False)
        console.print(row.detail, markup=False, highlight=False, soft_wrap=True)
    if refused:
        console.print(f"\napply() would refuse: {len(refused)} of {len(rows)} functions are not as we know them.")
        raise SystemExit(1)
    count = sum(row.state is State.ORIGINAL for row in rows)
    rest = "" if count == len(rows) else "; the others are ours already"
    console.print(
        f"apply() would put in {count} of {len(rows)} functions{rest}." if count else "All of them are ours already."
    )


def _version(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
