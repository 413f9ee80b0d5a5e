"""Shows results as tables, on the terminal and in Markdown."""

from .cases import CONTESTANTS as ORDER
from .contestants import TITLES
from .statistics import ratio

MIB = 2**20
#: A floor below this many seconds is nothing to compare with.
LEAST_FLOOR = 0.02


def tables(results):
    """What the results say.

    Args:
        results (Results): the results.

    Returns:
        List[Tuple[str, List[str], List[List[str]]]]: title, head and rows of each table.
    """
    rows = results.rows
    found = [
        ("Seconds: median (least to most)", *_seconds(results, rows)),
        ("What a load costs beside time", *_costs(results, rows)),
    ]
    if results.failures:
        lines = [
            [
                results.titles[each["case"]],
                TITLES.get(each["contestant"], each["contestant"]),
                _last_line(each["reason"]),
            ]
            for each in results.failures
        ]
        found.append(("Could not do the job", ["", "", "because"], lines))
    return found


def _last_line(text):
    return text.strip().splitlines()[-1]


def _seconds(results, rows):
    present = [name for name in ORDER if any(row.contestant == name for row in rows)]
    head = ["", "files", "optimizer", *(TITLES[name] for name in present), "ours ÷ unmodified", "ours ÷ floor"]
    lines = []
    for situation in dict.fromkeys(row.situation for row in rows):
        here = {row.contestant: row for row in rows if row.situation == situation}
        cells = [_spread(here[name].seconds) if name in here else "" for name in present]
        lines.append([results.titles[situation[0]], *situation[1:], *cells, *_ratios(rows, here)])
    return head, lines


def _ratios(rows, here):
    if "ours" not in here:
        return ["", ""]
    floor = here["floor"].seconds.median if "floor" in here else 0
    return [
        _times(ratio(rows, here["ours"], "unmodified")),
        _times(ratio(rows, here["ours"], "floor") if floor >= LEAST_FLOOR else None),
    ]


def _costs(results, rows):
    device = any(row.extra_device is not None for row in rows)
    head = [
        "",
        "files",
        "optimizer",
        "",
        "from the disk ÷ own part",
        "extra anonymous MiB",
        "peak resident MiB",
        "files (openings)",
    ]
    lines = []
    for row in rows:
        opened = "" if row.files_opened is None else f"{row.files_opened} ({row.openings})"
        cells = [_times(row.disk_share), _mebibytes(row.extra_anonymous), _mebibytes(row.peak_resident), opened]
        line = [results.titles[row.case], row.cache, row.destination, TITLES[row.contestant], *cells]
        lines.append(line + [_mebibytes(row.extra_device)] * device)
    return head + ["extra device MiB"] * device, lines


def _spread(spread):
    return f"{spread.median:.3f} ({spread.low:.3f} to {spread.high:.3f})"


def _times(factor):
    return "" if factor is None else f"{factor:.2f}"


def _mebibytes(size):
    return "" if size is None else f"{size / MIB:.0f}"


def notes(results):
    """What to know when reading the tables.

    Args:
        results (Results): the results.

    Returns:
        List[str]: a sentence or two each.
    """
    rounds = {row.seconds.count for row in results.rows}
    found = [
        f"Rounds: {', '.join(map(str, sorted(rounds)))}, in fresh processes, one torch thread each; the slowest rank counts.",
        "Memory and openings are from a round of their own, whose time does not count. Openings are those that Python makes.",
        "Cold: on the disk only, and each rank has a copy of its own. Fresh: without state; trained: after a step.",
    ]
    cold = [row for row in results.rows if row.contestant == "floor" and row.cache == "cold"]
    if any(row.disk_share < 0.5 for row in cold):
        found.append("Not cold after all: the file system kept files in memory, so that little came from the disk.")
    if results.machine.get("load before", 0) > 0.5:
        found.append("The machine did other work when this began: do not trust the seconds.")
    return found


def show(console, results):
    """Print the results.

    Args:
        console (rich.console.Console): where to.
        results (Results): the results.
    """
    from rich.table import Table

    for title, head, lines in tables(results):
        table = Table(title=title, title_justify="left", header_style="bold")
        for number, name in enumerate(head):
            table.add_column(name, justify="left" if number < 3 or not name else "right", overflow="fold")
        before = None
        for line in lines:
            if before is not None and line[0] != before:
                table.add_section()
            table.add_row(*line)
            before = line[0]
        console.print(table)
    for note in notes(results):
        console.print(note)
    console.print(", ".join(f"{name}: {value}" for name, value in results.machine.items()))


def markdown(results, picture=None):
    """Write the results down in Markdown.

    Args:
        results (Results): the results.
        picture (Optional[str]): address of the picture.

    Returns:
        str: the text.
    """
    parts = ["# Loading an optimizer checkpoint: benchmark"]
    parts += [f"![Seconds of each loader, against the floor]({picture})"] if picture else []
    parts.append("\n".join(f"- {note}" for note in notes(results)))
    for title, head, lines in tables(results):
        rows = [head, ["---" if number < 3 else "---:" for number in range(len(head))], *lines]
        parts.append(
            f"## {title}\n\n" + "\n".join("| " + " | ".join(_cell(each) for each in row) + " |" for row in rows)
        )
    parts.append("## Machine\n\n" + "\n".join(f"- {name}: {value}" for name, value in results.machine.items()))
    return "\n\n".join(parts) + "\n"


def _cell(text):
    return text.replace("|", "\\|")
