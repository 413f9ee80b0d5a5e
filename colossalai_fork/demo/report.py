"""The demo's tables."""

import importlib.metadata
from typing import Iterable

from rich.table import Table
from rich.text import Text

from .results import Claim, Reproduction, Training


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(version unknown)"


def reproduction_table(unmodified: Reproduction, fixed: Reproduction) -> Table:
    """Set the results of the smallest case side by side.

    Args:
        unmodified (Reproduction): with ColossalAI as it is installed.
        fixed (Reproduction): with the overlay.

    Returns:
        Table: the table.
    """
    table = Table(title="A checkpoint without state, loaded over a used optimizer", title_justify="left")
    table.add_column("")
    table.add_column(f"colossalai {_version('colossalai')}", style="red")
    table.add_column("fixed", style="green")
    table.add_row("loaded state", Text(unmodified.state), Text(fixed.state))
    table.add_row("next step", unmodified.parameter, fixed.parameter)
    return table


def training_table(training: Training) -> Table:
    """List the runs of the training.

    Args:
        training (Training): what came of it.

    Returns:
        Table: the table.
    """
    reference = training.reference
    table = Table(title="State at the checkpoint, or after going back to it, and what came after", title_justify="left")
    table.add_column("")
    for header in ("has state\nfor", "mean\nloss", "test\naccuracy", "parameters\ndiffer by", "all bits\nequal"):
        table.add_column(header, justify="right")
    rows = (
        ("reference", reference, "blue"),
        (f"colossalai {_version('colossalai')}", training.unmodified, "red"),
        ("fixed", training.fixed, "green"),
    )
    for name, run, style in rows:
        table.add_row(
            Text(name, style),
            f"{run.with_state} of {training.parameters}",
            f"{run.mean_loss:.4f}",
            f"{run.accuracy:.1%}",
            "" if run is reference else f"{run.distance:.2g}",
            "" if run is reference else "yes" if run.equals(reference) else "no",
        )
    return table


def cannot_save_text(training: Training) -> Text:
    """Say who wrote the checkpoint.

    Args:
        training (Training): what came of it.

    Returns:
        Text: a paragraph.
    """
    return Text(
        "All runs loaded the same files, written by the fixed saver, since ColossalAI's own failed: "
        f"{training.unmodified_cannot_save} (parameters without state).",
        "dim",
    )


def claims_table(claims: Iterable[Claim]) -> Table:
    """List what held and what did not.

    Args:
        claims (Iterable[Claim]): the claims.

    Returns:
        Table: a row for each, and what was found instead.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for claim in claims:
        if claim.holds:
            table.add_row(Text("holds", "green"), Text(claim.text))
        else:
            table.add_row(Text("FAILED", "bold red"), Text(f"{claim.text}\nfound: {claim.otherwise}"))
    return table
