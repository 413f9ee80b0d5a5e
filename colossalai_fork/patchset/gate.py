"""Has the gate judge a source tree instead of the installed ColossalAI, through its command line."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Iterable

import colossalai_fork

from .errors import PatchError

if TYPE_CHECKING:
    from .series import Series
    from .tree import Tree

_PACKAGE = pathlib.Path(colossalai_fork.__file__).resolve().parent


def judge(
    root: pathlib.Path, classes: Iterable[str], before: Iterable[pathlib.Path] = (), jobs: int | None = None
) -> dict[str, Any]:
    """Run the gate's cases on a tree as it is, with the overlay off.

    Args:
        root (pathlib.Path): upstream's sources.
        classes (Iterable[str]): names of checkpoint IO classes.
        before (Iterable[pathlib.Path]): directories that come before all others on the path.
        jobs (int | None): test processes at a time; as the gate chooses if None.

    Returns:
        dict: the gate's report.

    Raises:
        PatchError: if the gate could not judge.
    """
    path = [*map(str, before), str(root), str(_PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory(prefix="colossalai-gate-") as folder:
        report = pathlib.Path(folder) / "report.json"
        options = ["--overlay", "off", "--classes", ",".join(classes), "--report", str(report)]
        options += ["--jobs", str(jobs)] if jobs else []
        done = subprocess.run(
            [sys.executable, "-m", "colossalai_fork", "gate", *options],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # 0: all held; 1: some were violated; anything else: the gate could not judge.
        if done.returncode not in (0, 1) or not report.is_file():
            raise PatchError(f"the gate cannot judge {root}:\n{done.stdout[-3000:]}")
        return json.loads(report.read_text(encoding="utf-8"))


def holds(tree: Tree, series: Series) -> bool:
    """Tell whether a tree holds the contract for every class that a series changes.

    Args:
        tree (tree.Tree): upstream's sources.
        series (series.Series): the series.

    Returns:
        bool: whether no case is violated.

    Raises:
        PatchError: if the gate could not judge.
    """
    classes = dict.fromkeys(name for patch in series.patches for name in patch.classes)
    return not any(case["status"] == "violated" for case in judge(tree.root, classes)["cases"])
