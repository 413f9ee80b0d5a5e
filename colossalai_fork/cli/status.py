"""``colossalai-fork status``: which functions of the installed ColossalAI are its own, and which are ours."""

import importlib.metadata

import click


@click.command()
def status():
    """Tell whether the overlay fits the installed ColossalAI.

    Exit status: 0 if apply() would work (or has nothing to do), 1 if it would refuse.
    """
    # Not at the top: colossalai takes seconds to import, and the other commands need not wait for it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    import colossalai_fork
    from colossalai_fork.overlay.inspection import State

    console = Console()
    rows = colossalai_fork.status()
    styles = {State.ORIGINAL: "yellow", State.REPLACED: "green", State.ALREADY_FIXED: "green"}
    table = Table(title=f"colossalai {_version('colossalai')}, torch {_version('torch')}")
    table.add_column("function", overflow="fold")
    table.add_column("state")
    table.add_column("version")
    for row in rows:
        version = row.detail if row.state is State.ORIGINAL else ""
        table.add_row(row.symbol.replace(":", ": "), Text(str(row.state), styles.get(row.state, "red")), version)
    console.print(table)

    refused = [row for row in rows if row.state in (State.UNKNOWN, State.MISSING)]
    for row in refused:
        console.print(f"\n{row.symbol} is {row.state}", style="red", markup=False)
        console.print(row.detail, markup=False, highlight=False, soft_wrap=True)
    if refused:
        console.print(f"\napply() would refuse: {len(refused)} of {len(rows)} functions are not as we know them.")
        raise SystemExit(1)
    count = sum(row.state is State.ORIGINAL for row in rows)
    console.print(f"apply() would replace {count} of {len(rows)} functions; the others are ours already.")


def _version(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
