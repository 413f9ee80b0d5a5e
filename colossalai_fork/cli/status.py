"""``colossalai-fork status``: which functions of the installed ColossalAI are its own, and which are ours."""

import importlib.metadata
import itertools
import re
from typing import Iterator

import click

# Known faults of torch.load(weights_only=True), and the first version without them.
FAULTS = {
    "CVE-2025-32434": ((2, 6), "a file can run code"),
    "CVE-2026-24747": ((2, 10), "a file can change memory that is not its own"),
}


@click.command()
def status() -> None:
    """Tell whether the overlay fits the installed ColossalAI.

    Warns about a torch whose weights_only loading has known faults; SECURITY.md says when that matters.

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
    for text in _warnings(_version("torch")):
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

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


def _warnings(version: str) -> Iterator[str]:
    found = re.match(r"(\d+)\.(\d+)", version)
    for name, (fixed, what) in FAULTS.items():
        if found and tuple(map(int, found.groups())) < fixed:
            yield (
                f"Warning: torch {version} has {name}: with torch.load(weights_only=True) {what}. Do not allow classes by "
                f"torch.serialization.add_safe_globals for files that you do not trust, or use torch {fixed[0]}.{fixed[1]}."
            )


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
