"""Does the series fit a source tree, does the tree have it already, or did upstream's functions change?"""

import dataclasses

from .known import CHANGED, OURS, survey


@dataclasses.dataclass(frozen=True)
class Report:
    """The answer.

    Args:
        fits (bool): whether nothing stands in the way: every function is known or ours, or the tree needs no series.
        fixed (bool): whether the tree needs no series: every function is ours already, or the contract holds without.
        text (str): a line a patch, then what changed.
    """

    fits: bool
    fixed: bool
    text: str


def check(series, source, tree, contract_holds=None):
    """Compare a source tree with what the series was written for.

    Args:
        series (series.Series): the series.
        source (source.Source): the fork's code.
        tree (tree.Tree): upstream's sources.
        contract_holds (Callable[[], bool] | None): asked if functions are not as known, whether the tree behaves as the
            series would make it behave; nobody is asked if None.

    Returns:
        Report: the answer.
    """
    series.check_rows(source.rows)
    findings = survey(source, tree, source.rows)
    lines = []
    for patch in series.patches:
        found = [finding for finding in findings if finding.row.patch == patch.name]
        if found:
            lines.append(f"{patch.name}: {_state(found)}")
    changes = [finding.change for finding in findings if finding.verdict == CHANGED]
    fixed = bool(findings) and all(finding.verdict == OURS for finding in findings)
    if fixed:
        lines.append("already fixed: every function of the series is in this tree")
    elif changes and contract_holds is not None and contract_holds():
        lines.append("already fixed: this tree has other functions, and the contract holds with them")
        return Report(True, True, "\n".join(lines))
    elif changes:
        lines.append(f"{len(changes)} of {len(findings)} functions are not as this series knows them:")
        lines += [f"\n{change}" for change in changes]
    else:
        lines.append("the series fits this tree")
    return Report(not changes, fixed, "\n".join(lines))


def _state(findings):
    changed = sum(finding.verdict == CHANGED for finding in findings)
    ours = sum(finding.verdict == OURS for finding in findings)
    if changed:
        return f"{changed} of {len(findings)} functions changed"
    if ours == len(findings):
        return "already fixed"
    versions = sorted({finding.version for finding in findings if finding.version})
    state = f"fits ({len(findings)} functions" + (f", as in ColossalAI {', '.join(versions)})" if versions else ")")
    return state + (f"; {ours} of them are in already" if ours else "")
