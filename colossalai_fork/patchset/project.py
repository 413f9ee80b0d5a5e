"""This project's own series and code, as the command line uses them."""

import pathlib

from . import series as series_module
from .source import Source


def series():
    """Read the project's series.

    Returns:
        series.Series: the patches.
    """
    return series_module.read()


def source():
    """Find the project's own code.

    Returns:
        source.Source: the package that goes upstream, and the table of what it replaces there.
    """
    from ..overlay.table import REPLACEMENTS

    root = pathlib.Path(__file__).resolve().parents[2]
    return Source(root, "colossalai_fork.checkpoint_io", "colossalai.checkpoint_io", list(REPLACEMENTS))
