"""Shows results as tables, on the terminal and in Markdown."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from .cases import CONTESTANTS as ORDER
from .contestants import NAMES
from .summary import Row, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from .run import Results

MIB = 2**20
#: A floor below this many seconds is nothing to compare with.
LEAST_FLOOR = 0.02


@dataclasses.dataclass
class Table:
    """A table of texts.

    Attributes:
        title (str): its title.
        head (List[str]): names of the columns; those of numbers come after :attr:`words`.
        words (int): number of columns with words.
        rows (List[List[str]]): the rows.
    """

    title: str
    head: list[str]
    words: int
    rows: list[list[str]]


def overview(results: Results) -> Table:
    """The medians of everybody, side by side.

    Args:
        results (Results): the results.

    Returns:
        Table: the table.
    """
    rows = results.rows
    present = [name for name in ORDER if any(row.contestant == name for row in rows)]
    head = ["seconds", "files, optimizer", *(NAMES[name] for name in present), "ours ÷ unmodified", "ours ÷ floor"]
    lines = []
    for situation in dict.fromkeys(row.situation for row in rows):
        here = {row.contestant: row for row in rows if row.situation == situation}
        seconds = [f"{here[name].seconds.median:.3f}" if name in here else "" for name in present]
        ours = here.get("ours")
        ratios = ["", ""] if ours is None else [_times(ratio(rows, ours, "unmodified")), _against_floor(rows, ours)]
        lines.append([results.titles[situation[0]], ", ".join(situation[1:]), *seconds, *ratios])
    return Table("Overview", head, 2, lines)


def details(results: Results) -> list[Table]:
    """All figures of each case.

    Args:
        results (Results): the results.

    Returns:
        List[Table]: a table for each case, and one of those who could not do their job if there are any.
    """
    rows = results.rows
    head = ["files, optimizer", "loader", "sec.", "from", "to", "÷ unmod.", "÷ floor", "read", "extra MiB"]
    head += ["peak MiB", "opened"]
    device = any(row.extra_device is not None for row in rows)
    tables = []
    for case in dict.fromkeys(row.case for row in rows):
        lines = [_line(rows, row) + [_mebibytes(row.extra_device)] * device for row in _in_order(rows, case)]
        tables.append(Table(results.titles[case], head + ["extra device MiB"] * device, 2, lines))
    if results.failures:
        lines = [
            [results.titles[each["case"]], NAMES.get(each["contestant"], "saving"), each["reason"].split("\n")[-2:][0]]
            for each in results.failures
        ]
        tables.append(Table("Failed", ["case", "loader", "because"], 3, lines))
    return tables


def _in_order(rows: list[Row], case: str) -> list[Row]:
    chosen = [row for row in rows if row.case == case]
    situations = list(dict.fromkeys(row.situation for row in chosen))
    return sorted(chosen, key=lambda row: (situations.index(row.situation), ORDER.index(row.contestant)))


def _line(rows: list[Row], row: Row) -> list[str]:
    seconds = row.seconds
    return [
        f"{row.cache}, {row.destination}",
        NAMES[row.contestant],
        *(f"{number:.3f}" for number in (seconds.median, seconds.low, seconds.high)),
        _times(ratio(rows, row, "unmodified")),
        _against_floor(rows, row),
        _times(row.disk_share),
        _mebibytes(row.extra_anonymous),
        _mebibytes(row.peak_resident),
        "" if row.openings is None else str(row.openings),
    ]


def _against_floor(rows: list[Row], row: Row) -> str:
    factor = ratio(rows, row, "floor")
    return "" if factor is None or row.seconds.median < LEAST_FLOOR * factor else _times(factor)


def _times(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.2f}"


def _mebibytes(size: int | None) -> str:
    return "" if size is None else f"{size / MIB:.0f}"


def notes(results: Results) -> list[str]:
    """What to know when reading the tables.

    Args:
        results (Results): the results.

    Returns:
        List[str]: a sentence or more each.
    """
    rows = results.rows
    counts = " or ".join(str(count) for count in sorted({row.seconds.count for row in rows})) or "no"
    found = [
        "Ours is ColossalAI after colossalai_fork.apply(), unmodified is ColossalAI as it is. torch is torch.load and the "
        "optimizer's load_state_dict, from one file; torch DCP is torch.distributed.checkpoint, from files of its own.",
        f"Seconds are medians of {counts} rounds, with their range. The loaders take turns, each time in new processes, "
        "with one torch thread each. Of several ranks the slowest counts.",
        "Warm files are in the page cache. Cold ones are on the disk only, and each rank has a copy of its own. A fresh "
        "optimizer has no state, a trained one has taken a step.",
        "Read is what came from the disk, as a multiple of the state that the rank keeps; extra is anonymous memory beyond "
        "the state before or afterwards, whichever is more; peak is resident memory; opened counts how often Python code "
        "opened a file of the checkpoint. Memory and openings are from a round of their own, the most of all ranks.",
        "The floor reads as many bytes as the rank keeps, once, into new memory. It takes no part in any agreement.",
    ]
    cold = [row for row in rows if row.contestant == "floor" and row.cache == "cold"]
    if any(row.disk_share < 0.5 for row in cold):
        found.append("Cold files were not cold: little came from the disk, so the file system keeps them in memory.")
    if results.machine.get("load before", 0) > 0.5:
        found.append("The machine did other work when this began: do not trust the seconds.")
    return found


def show(console: Console, results: Results) -> None:
    """Print the results.

    Args:
        console (rich.console.Console): where to.
        results (Results): the results.
    """
    from rich import box, table

    for content in [*details(results), overview(results)]:
        shown = table.Table(title=content.title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for number, name in enumerate(content.head):
            shown.add_column(
                name, justify="left" if number < content.words else "right", no_wrap=number < content.words
            )
        for line in content.rows:
            shown.add_row(*line)
        console.print(shown)
    for note in notes(results):
        console.print(note)
    console.print(", ".join(f"{name}: {value}" for name, value in results.machine.items()))


def markdown(results: Results, picture: str | None = None) -> str:
    """Write the results down in Markdown.

    Args:
        results (Results): the results.
        picture (Optional[str]): address of the picture.

    Returns:
        str: the text.
    """
    parts = ["# Loading an optimizer checkpoint: benchmark"]
    parts += [f"![Seconds of each loader, against the floor]({picture})"] if picture else []
    parts += ["\n".join(f"- {note}" for note in notes(results))]
    for table in [overview(results), *details(results)]:
        line = ["---" if number < table.words else "---:" for number in range(len(table.head))]
        cells = [[cell.replace("|", "\\|") for cell in row] for row in (table.head, line, *table.rows)]
        parts.append(f"## {table.title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in cells))
    parts.append("## Machine\n\n" + "\n".join(f"- {name}: {value}" for name, value in results.machine.items()))
    return "\n\n".join(parts) + "\n"
