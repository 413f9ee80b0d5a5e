"""Does the series fit a source tree, does the tree have it already, or did upstream's functions change?"""

import dataclasses

from .known import CHANGED, OURS, survey


@dataclasses.dataclass(frozen=True)
class Report:
    """The answer.

    Args:
        fits (bool): whether nothing stands in the way: every function is either known or ours.
        fixed (bool): whether every function is ours already.
        text (str): a line a patch, then what changed.
    """

    fits: bool
    fixed: bool
    text: str


def check(series, source, tree):
    """Compare a source tree with what the series was written for.

    Args:
        series (series.Series): the series.
        source (source.Source): the fork's code.
        tree (tree.Tree): upstream's sources.

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
