"""Does the series fit a source tree, does the tree have it already, or did upstream's functions change?"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from typing import TYPE_CHECKING, Callable

from . import stack
from .errors import PatchError
from .finding import CHANGED, REVIEWED
from .tree import NOBODY, Tree

if TYPE_CHECKING:
    from .edits import Edits
    from .functions.maker import Functions
    from .series import Series


@dataclasses.dataclass(frozen=True)
class Report:
    """The answer.

    Args:
        fits (bool): whether nothing stands in the way: what is not in the tree can be exported, or the tree needs none.
        fixed (bool): whether the tree needs no patch: all of them are in, or the contract holds without.
        text (str): a line a patch, then what changed.
    """

    fits: bool
    fixed: bool
    text: str


def check(
    series: Series, maker: Functions | Edits, tree: Tree, contract_holds: Callable[[], bool] | None = None
) -> Report:
    """Make the series on a copy of a source tree, and tell what came of it.

    Args:
        series (series.Series): the series.
        maker (functions.maker.Functions | edits.Edits): what makes its patches.
        tree (tree.Tree): upstream's sources. For a checkout its last commit counts.
        contract_holds (Callable[[], bool] | None): asked if functions are not as known, whether the tree behaves as the
            series would make it behave; nobody is asked if None.

    Returns:
        Report: the answer. :func:`export.export` writes the series exactly if it fits and is not all there.
    """
    with tempfile.TemporaryDirectory(prefix="colossalai-patches-") as scratch:
        root = tree.copy(pathlib.Path(scratch))
        states = stack.look(series, maker, root)
        lines = [f"{state.patch.name}: {_state(state)}" for state in states]
        lines += [f"\n{note}" for state in states if state.is_in for note in _notes(state)]
        if all(state.is_in for state in states):
            lines.append("already fixed: every patch of the series is in this tree")
            return Report(True, True, "\n".join(lines))
        try:
            stack.build(series, maker, tree, pathlib.Path(scratch), NOBODY, looked=(root, states))
        except PatchError as error:
            if any(state.changes for state in states) and contract_holds is not None and contract_holds():
                lines.append("already fixed: this tree has other functions, and the contract holds with them")
                return Report(True, True, "\n".join(lines))
            return Report(False, False, "\n".join([*lines, f"\n{error}"]))
    lines.append("the series fits this tree")
    return Report(True, False, "\n".join(lines))


def _state(state: stack.State) -> str:
    changed = sum(finding.verdict == CHANGED for finding in state.findings)
    inside = sum(finding.is_in for finding in state.findings)
    if state.is_in:
        reviewed = changed or any(finding.verdict == REVIEWED for finding in state.findings)
        return "already in" + (", with differences" if reviewed else "")
    if changed:
        return f"{changed} of {len(state.findings)} places changed"
    versions = sorted({finding.version for finding in state.findings if finding.version})
    fits = f"fits ({len(state.findings)} places" + (f", as in ColossalAI {', '.join(versions)})" if versions else ")")
    return fits + (f"; {inside} of them are in already" if inside else "")


def _notes(state: stack.State) -> list[str]:
    return [finding.change for finding in state.findings if finding.verdict in (CHANGED, REVIEWED) and finding.change]
