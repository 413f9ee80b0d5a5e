"""Which contract points hold after each patch: measured by the gate, kept beside the series, written into its texts."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import TYPE_CHECKING, Any

from .errors import PatchError

if TYPE_CHECKING:
    from .series import Patch


@dataclasses.dataclass(frozen=True)
class Points:
    """What the gate has reported.

    Args:
        measured (dict): by patch (``""`` for the tree before all of them), class and point, how many cases hold and how
            many say something: ``{"reset-general": {"GeneralCheckpointIO": {"1": [70, 90]}}}``.
    """

    measured: dict[str, dict[str, dict[str, list[int]]]]

    def before(self, patch: str, name: str) -> dict[str, list[int]]:
        """Find what was measured last before a patch.

        Args:
            patch (str): the patch.
            name (str): the class.

        Returns:
            dict: held and all cases by point.
        """
        found = {}
        for each, classes in self.measured.items():
            if each == patch:
                return found
            found = classes.get(name, found)
        return found

    def gained(self, patch: str) -> dict[str, list[str]]:
        """Find the points that a patch makes hold.

        Args:
            patch (str): the patch.

        Returns:
            dict[str, list[str]]: by class.
        """
        return {
            name: [
                point
                for point, (held, of) in after.items()
                if held == of and _status(self.before(patch, name).get(point)) != "holds"
            ]
            for name, after in self.measured.get(patch, {}).items()
        }

    def table(self, patch: Patch) -> str:
        """Write what a patch changes, for its pull request.

        Args:
            patch (series.Patch): the patch.

        Returns:
            str: a Markdown table of the points for which the number of cases that hold changes; each class has a column.
        """
        classes = self.measured.get(patch.name, {})
        if not patch.classes:
            return "None yet: no loader uses what this PR adds."
        if not classes:
            return "Not measured."
        rows = []
        for point, meaning in POINTS.items():
            cells, changed = [], False
            for name, after in classes.items():
                old, new = self.before(patch.name, name).get(point), after.get(point)
                changed |= old != new
                cells.append(_cell(old, new))
            if changed:
                rows.append(f"| {point} {meaning} | {' | '.join(cells)} |")
        short = [name.replace("CheckpointIO", "") for name in classes]
        head = [f"| | {' | '.join(short)} |", "| --- " * (len(classes) + 1) + "|"]
        return "\n".join(head + rows) if rows else "No case of the gate says anything else than before."


#: The contract's points, as the table of a pull request names them.
POINTS = {
    "1": "the saved state replaces the present one",
    "2": "everything is checked before anything changes",
    "3": "all ranks load, or none",
    "4": "old, new or empty state, never a mixture",
    "5": "bounded memory",
    "6": "each rank reads what it needs",
    "7": "linear time",
    "8": "no code runs out of a file",
    "9": "works without an accelerator",
    "10": "loading does not train",
}


def read(file: pathlib.Path) -> Points:
    """Read what was measured.

    Args:
        file (pathlib.Path): a JSON file; nothing was measured if there is none.

    Returns:
        Points: the measurement.
    """
    try:
        return Points(json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {})
    except ValueError as error:
        raise PatchError(f"{file.name} is not JSON: {error}") from error


def write(file: pathlib.Path | str, measured: dict[str, dict[str, dict[str, list[int]]]]) -> None:
    """Keep what was measured.

    Args:
        file (pathlib.Path | str): the JSON file, with a line a class.
        measured (dict): see :class:`Points`.
    """
    patches = []
    for patch, classes in measured.items():
        lines = [f"    {json.dumps(name)}: {json.dumps(found)}" for name, found in classes.items()]
        patches.append(f"  {json.dumps(patch)}: {{\n" + ",\n".join(lines) + "\n  }")
    with open(file, "w", encoding="utf-8") as stream:
        stream.write("{\n" + ",\n".join(patches) + "\n}\n")


def count(report: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    """Count the cases of a report of the gate.

    Args:
        report (dict): what ``colossalai-fork gate --report FILE.json`` has written.

    Returns:
        dict: by class and point, how many cases hold and how many say something.
    """
    found = {}
    for case in report["cases"]:
        if case["status"] in ("held", "violated") and case["class"]:
            for point in case["points"]:
                cell = found.setdefault(case["class"], {}).setdefault(str(point), [0, 0])
                cell[0] += case["status"] == "held"
                cell[1] += 1
    return {name: {point: points[point] for point in POINTS if point in points} for name, points in found.items()}


def _status(cell: list[int] | None) -> str:
    return "no case" if cell is None else "holds" if cell[0] == cell[1] else "violated"


def _cell(old: list[int] | None, new: list[int] | None) -> str:
    if new is None:
        return "no case"
    before = f"{old[0]} → " if old is not None else ""
    return f"{before}{new[0]} of {new[1]}" + (", holds" if new[0] == new[1] else "")
