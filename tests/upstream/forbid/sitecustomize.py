"""Python imports this at start-up when its directory is on the path: ColossalAI must do without the fork.

Nobody gets the fork's checkpoint code or its overlay, and ColossalAI gets nothing of the fork at all. What is left for
the tests is the kit that holds the contract, and the command that runs it.
"""

import builtins
import importlib.abc
import sys

ALLOWED = ("colossalai_fork", "colossalai_fork.__main__", "colossalai_fork.cli", "colossalai_fork.gate")


class ForkIsForbidden(ImportError):
    """Something wanted a part of the fork that must not be needed."""


def refuse(name, importer):
    """Raise if a module may not be imported by another.

    Args:
        name (str): the module that is to be imported.
        importer (str): the module that holds the import statement.
    """
    if name.partition(".")[0] != "colossalai_fork":
        return
    if importer.partition(".")[0] == "colossalai":
        raise ForkIsForbidden(f"{importer} imports {name}")
    if name not in ALLOWED and not name.startswith(("colossalai_fork.cli.", "colossalai_fork.gate.")):
        raise ForkIsForbidden(f"{importer} imports {name}, which is switched off")


class Guard(importlib.abc.MetaPathFinder):
    """Sees each module's first import, also by importlib."""

    def find_spec(self, name, path=None, target=None):
        """Refuse, or leave the module to the other finders."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
            "importlib",
            "_frozen_importlib",
        ):
            frame = frame.f_back
        refuse(name, frame.f_globals.get("__name__", "") if frame is not None else "")


_import = builtins.__import__


def _guarded_import(name, globals=None, locals=None, fromlist=(), level=0):
    # Sees every import statement, also of what is imported already.
    if level == 0:
        refuse(name, (globals or {}).get("__name__") or "")
    return _import(name, globals, locals, fromlist, level)


sys.meta_path.insert(0, Guard())
builtins.__import__ = _guarded_import
