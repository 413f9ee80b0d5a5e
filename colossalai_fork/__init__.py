"""
Optimizer checkpoints that load right in ColossalAI.

``apply()`` puts the corrected loaders into the installed ColossalAI, ``revert()`` takes them out again and ``status()``
tells what is there now. Importing this package changes nothing.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["apply", "revert", "status"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        # torch and colossalai take seconds to import: not before somebody asks for them.
        from .overlay import apply as overlay

        return getattr(overlay, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
