"""Runs the gate's contract cases against a source tree instead of the installed ColossalAI."""

import os
import pathlib
import subprocess
import sys

import colossalai_fork

from .errors import PatchError

_PACKAGE = pathlib.Path(colossalai_fork.__file__).resolve().parent


def holds(tree, series):
    """Run the contract cases of every patch on a tree as it is, with the overlay off.

    Args:
        tree (tree.Tree): upstream's sources.
        series (series.Series): the series, which names the cases of each patch.

    Returns:
        bool: whether all of them pass.

    Raises:
        PatchError: if they cannot be run.
    """
    files = [str(_PACKAGE / "gate" / name) for patch in series.patches for name in patch.contract]
    path = [str(tree.root), str(_PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = ("-q", "--no-header", "-p", "colossalai_fork.gate.plugin", "-p", "no:cacheprovider", "--overlay", "off")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--maxfail", "1", "--rootdir", str(_PACKAGE), *files],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        cwd=tree.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # 0: all passed; 1: some failed; anything else: the run itself broke.
    if done.returncode not in (0, 1):
        raise PatchError(f"the contract cases cannot be run against {tree.root}:\n{done.stdout[-2000:]}")
    return done.returncode == 0
