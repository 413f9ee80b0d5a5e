"""The gate's results as tables for a terminal."""

from rich import box
from rich.table import Table
from rich.text import Text

from .case_results import BROKEN, HELD, NOT_APPLICABLE, POINTS, VIOLATED, Cell, GateResults

_STYLES = {HELD: "green", VIOLATED: "bold red", NOT_APPLICABLE: "dim", BROKEN: "magenta"}


def short(name: str) -> str:
    """A class's name for the head of a column.

    Args:
        name (str): the name.

    Returns:
        str: without "CheckpointIO", if anything else is left.
    """
    return name.removesuffix("CheckpointIO") or name


def cell_text(cell: Cell) -> str:
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


def contract_tables(results: GateResults, width: int) -> list[Table]:
    """Set classes and contract points against each other, in as many tables as it takes to crop nothing.

    Args:
        results (GateResults): the results.
        width (int): of the terminal.

    Returns:
        List[Table]: tables with a row for each point and a column for each class.
    """
    first = max(len(title) for title in POINTS.values()) + 4
    columns = []
    for name in results.classes:
        cells = [results.cell(name, point) for point in POINTS]
        columns.append((short(name), cells, max(len(short(name)), *(len(cell_text(cell)) for cell in cells)) + 2))
    tables, rest = [], columns
    while rest:
        count, used = 0, first
        while count < len(rest) and (count == 0 or used + rest[count][2] <= width):
            used += rest[count][2]
            count += 1
        tables.append(_contract_table(rest[:count], first=not tables))
        rest = rest[count:]
    return tables


def _contract_table(columns: list[tuple[str, list[Cell], int]], first: bool) -> Table:
    title = "Contract" if first else None
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, title=title, title_justify="left", pad_edge=False)
    table.add_column("point", overflow="fold")
    for name, _, _ in columns:
        table.add_column(name, overflow="fold")
    for number, (point, title) in enumerate(POINTS.items()):
        cells = [cells[number] for _, cells, _ in columns]
        texts = [Text(cell_text(cell), _STYLES.get(cell.status, "dim")) for cell in cells]
        table.add_row(f"{point:>2} {title}", *texts)
    return table


def violation_lines(results: GateResults) -> list[Text]:
    """List what was violated, the most telling first: which class and case, how often, and the whole reason.

    Args:
        results (GateResults): the results.

    Returns:
        List[Text]: paragraphs.
    """
    paragraphs = [Text("Violations", "bold")]
    for (name, method), group in results.by_case().items():
        case = method.removeprefix("test_").replace("_", " ")
        times = f" ({len(group)} times)" if len(group) > 1 else ""
        paragraphs.append(Text.assemble((short(name), "bold"), f": {case}{times}"))
        paragraphs.append(Text(f"    {group[0].reason}"))
    return paragraphs


def reason_lines(results: GateResults) -> list[Text]:
    """List why points do not apply.

    Args:
        results (GateResults): the results.

    Returns:
        List[Text]: paragraphs.
    """
    paragraphs = [Text("Not applicable", "bold")]
    for (point, reason), names in results.not_applicable().items():
        paragraphs.append(Text(f"{point:>2} {POINTS[point]}: {reason} ({', '.join(map(short, names))})"))
    return paragraphs


def slowest_lines(results: GateResults) -> list[Text]:
    """List the slowest cases.

    Args:
        results (GateResults): the results.

    Returns:
        List[Text]: paragraphs.
    """
    lines = [Text(f"{each.seconds:>8.2f} s  {each.id}") for each in results.slowest()]
    return [Text("Slowest cases", "bold"), *lines]
