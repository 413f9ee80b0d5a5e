"""The gate's results as tables for a terminal."""

from rich import box
from rich.table import Table
from rich.text import Text

from .case_results import BROKEN, HELD, NOT_APPLICABLE, POINTS, VIOLATED

_STYLES = {HELD: "green", VIOLATED: "bold red", NOT_APPLICABLE: "dim", BROKEN: "magenta"}


def short(name):
    """A class's name for the head of a column.

    Args:
        name (str): the name.

    Returns:
        str: without "CheckpointIO", if anything else is left.
    """
    return name.removesuffix("CheckpointIO") or name


def cell_text(cell):
    """Say what a class's cases of a point came to.

    Args:
        cell (Cell): the cases.

    Returns:
        str: the status, and how many cases say so.
    """
    if cell.status == HELD:
        return f"holds ({cell.ran})"
    if cell.status == VIOLATED:
        return f"violated ({cell.count(VIOLATED)} of {cell.ran})"
    if cell.status == BROKEN:
        return f"broken ({cell.count(BROKEN)} of {len(cell.results)})"
    return "not applicable" if cell.status == NOT_APPLICABLE else "no case ran"


def contract_table(results):
    """Set classes and contract points against each other.

    Args:
        results (GateResults): the results.

    Returns:
        Table: a row for each point and a column for each class.
    """
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, title="Contract", title_justify="left")
    table.add_column("point")
    for name in results.classes:
        table.add_column(short(name))
    for point, title in POINTS.items():
        cells = [results.cell(name, point) for name in results.classes]
        texts = [Text(cell_text(cell), _STYLES.get(cell.status, "dim")) for cell in cells]
        table.add_row(f"{point:>2} {title}", *texts)
    return table


def violations_table(results):
    """List what was violated.

    Args:
        results (GateResults): the results.

    Returns:
        Table: a row for each class and test method, with the first reason.
    """
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, title="Violations", title_justify="left")
    groups = results.by_case()
    shown = [method.removeprefix("test_").replace("_", " ") for _, method in groups]
    table.add_column("class", no_wrap=True, min_width=max((len(short(name)) for name, _ in groups), default=5))
    table.add_column("case", overflow="fold", min_width=min(40, max(map(len, shown), default=4)))
    table.add_column("times", justify="right", min_width=5)
    table.add_column("for example", overflow="fold")
    for ((name, _), group), case in zip(groups.items(), shown):
        table.add_row(short(name), case, str(len(group)), Text(shortened(group[0].reason, 100)))
    return table


def shortened(text, most=160):
    """Cut a text to a length.

    Args:
        text (str): the text.
        most (int): how many characters may be left.

    Returns:
        str: the text, or its beginning.
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def reasons_table(results):
    """List why points do not apply.

    Args:
        results (GateResults): the results.

    Returns:
        Table: a row for each point and reason, with the classes.
    """
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, title="Not applicable", title_justify="left")
    table.add_column("point")
    table.add_column("reason", overflow="fold")
    table.add_column("classes", overflow="fold")
    for (point, reason), names in results.not_applicable().items():
        table.add_row(f"{point:>2} {POINTS[point]}", Text(reason), ", ".join(map(short, names)))
    return table
