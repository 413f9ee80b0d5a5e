"""Draws the loss curves into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .curves import Curves
from .schedule import BATCH_SIZE, WORLD_SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours that people with any colour vision can tell apart (Okabe and Ito's, and shades of them), and different lines.
_STYLES = {
    "astray": {"color": "#8c8c8c", "linestyle": ":", "linewidth": 1.8},
    "unmodified": {"color": "#d55e00", "linestyle": "-", "linewidth": 2.0},
    "reference": {"color": "#9ecae9", "linestyle": "-", "linewidth": 6.0},
    "fixed": {"color": "#003f6b", "linestyle": (0, (4, 2)), "linewidth": 1.8},
}
_INK = "#333333"


def suffixes() -> list[str]:
    """List the suffixes of the files that can be written.

    Returns:
        List[str]: the suffixes, with their dots.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    return ["." + suffix for suffix in FigureCanvasBase.get_supported_filetypes()]


def save(curves: Curves, file: str) -> None:
    """Draw the curves.

    Args:
        curves (Curves): the curves.
        file (str): where to; its suffix decides the format.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for name, style in _STYLES.items():
        curve = getattr(curves, name)
        axes.plot(curve.steps, curve.losses, label=curve.name, **style)
    _mark_return(axes, curves)

    axes.set_xlim(0, curves.last_step)
    axes.set_ylim(0, curves.top)
    axes.set_xlabel("optimizer steps made")
    axes.set_ylabel("training loss (cross-entropy, nats)")
    axes.set_title(
        "Back to an early checkpoint: what the loader leaves in the optimizer",
        loc="left",
        fontsize=13,
        fontweight="bold",
        pad=26,
    )
    axes.annotate(
        f"Adam, ZeRO stage 1 on {WORLD_SIZE} processes; scikit-learn's digits, {WORLD_SIZE * BATCH_SIZE} images a step",
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 9),
        textcoords="offset points",
        color=_INK,
    )
    axes.grid(True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", frameon=True, edgecolor="none", framealpha=0.9)
    figure.savefig(file)


def _mark_return(axes: Axes, curves: Curves) -> None:
    place = curves.fixed.steps[0], curves.fixed.losses[0]
    axes.vlines(place[0], 0, place[1], color=_INK, linewidth=0.8)
    axes.plot(*place, "o", color=_INK, markersize=7, zorder=5)
    axes.annotate(
        "checkpoint: only the last\nlayer was trained so far",
        xy=(place[0], 0),
        xytext=(-4, 10),
        textcoords="offset points",
        rotation="vertical",
        ha="right",
        fontsize=9,
        color=_INK,
    )
    end = curves.astray.steps[-1], min(curves.astray.losses[-1], 0.97 * curves.top)
    arrow = {"arrowstyle": "-|>", "color": _INK, "connectionstyle": "arc3,rad=-0.3", "shrinkA": 2, "shrinkB": 6}
    axes.annotate("", xy=place, xytext=end, arrowprops=arrow)
