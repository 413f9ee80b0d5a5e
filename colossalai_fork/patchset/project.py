"""This project's own series and code, as the command line uses them."""

import pathlib

from . import edits
from . import series as series_module
from .fixes.reset_general import TESTS_ON_CPU
from .functions.maker import Functions
from .functions.source import Source

#: The series by name; the first is the default.
NAMES = ("fix", "contract")


def series(name: str) -> series_module.Series:
    """Read one of the project's series.

    Args:
        name (str): which.

    Returns:
        series.Series: the patches.
    """
    return series_module.read(series_module.folder(name))


def source() -> Source:
    """Find the project's own code.

    Returns:
        functions.source.Source: the package that goes upstream, and the table of what it replaces there.
    """
    from ..overlay.table import REPLACEMENTS

    root = pathlib.Path(__file__).resolve().parents[2]
    return Source(root, "colossalai_fork.checkpoint_io", "colossalai.checkpoint_io", list(REPLACEMENTS))


def maker(found: series_module.Series) -> Functions | edits.Edits:
    """Find what makes the patches of one of the project's series.

    Args:
        found (series.Series): the series.

    Returns:
        functions.maker.Functions | edits.Edits: the maker.
    """
    if found.folder.name == "contract":
        return Functions(source(), found, edits.Edits({found.patches[0].name: [TESTS_ON_CPU]}))
    return edits.Edits(edits.read(found), source())
