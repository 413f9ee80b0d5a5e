"""Draws the results: a bar for each loader, against the floor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contestants import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .run import Results
    from .summary import Row

#: Colours that people with any colour vision can tell apart (Okabe and Ito's).
_COLOURS = {"ours": "#0072b2", "unmodified": "#d55e00", "native": "#999999", "dcp": "#cc79a7"}
_COLUMNS = 3
_INK = "#333333"


def save(results: Results, path: str) -> None:
    """Draw the picture.

    Args:
        results (Results): the results.
        path (str): the file.
    """
    from matplotlib.figure import Figure

    rows = results.rows
    cases = list(dict.fromkeys(row.case for row in rows))
    columns = min(_COLUMNS, max(1, len(cases)))
    lines = max(1, -(-len(cases) // columns))
    figure = Figure(figsize=(4.6 * columns, 2.9 * lines + 0.6), dpi=150, layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, case in zip(panels, cases):
        _draw(panel, results.titles[case], [row for row in rows if row.case == case])
    for panel in panels[len(cases) :]:
        panel.remove()
    handles = {}
    for panel in panels[: len(cases)]:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles) or 1, frameon=False)
    figure.savefig(path)


def _draw(panel: Axes, title: str, rows: list[Row]) -> None:
    situations = list(dict.fromkeys((row.cache, row.destination) for row in rows))
    present = [name for name in _COLOURS if any(row.contestant == name for row in rows)]
    height = 0.8 / max(1, len(present))
    for row in rows:
        place = situations.index((row.cache, row.destination))
        spread = row.seconds
        if row.contestant == "floor":
            panel.vlines(
                spread.median, place - 0.45, place + 0.45, color=_INK, linewidth=1.5, label=NAMES["floor"], zorder=3
            )
            continue
        middle = place + (present.index(row.contestant) + 0.5) * height - 0.4
        error = [[spread.median - spread.low], [spread.high - spread.median]]
        bar = {"height": height * 0.9, "color": _COLOURS[row.contestant], "label": NAMES[row.contestant]}
        panel.barh(middle, spread.median, xerr=error, error_kw={"ecolor": _INK, "elinewidth": 0.8}, **bar)
    panel.set_yticks(range(len(situations)), [f"{cache}, {destination}" for cache, destination in situations])
    panel.invert_yaxis()
    panel.set_xlabel("seconds")
    panel.set_xlim(left=0)
    panel.set_title(title, loc="left", fontsize=10, fontweight="bold")
    panel.spines[["top", "right"]].set_visible(False)
