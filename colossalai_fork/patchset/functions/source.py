"""Where the fork's code lies and where each part of it goes.

The fork's ``checkpoint_io`` package holds two kinds of modules. A module that the replacement table names is a
*patchwork*: its functions and methods go into existing files of upstream, each with the private definitions and
imports that it needs. Every other module is *new*: it goes to upstream's package whole, under the same name, in the
first patch whose code imports it.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from ..errors import PatchError
from ..text.modules import Origins

if TYPE_CHECKING:
    from ...overlay.table import Replacement

FORK = "colossalai_fork"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where the fork's code lies and where it goes.

    Args:
        root (pathlib.Path): the directory that holds the fork's outermost package.
        package (str): the fork's package that is carried.
        upstream_package (str): upstream's package that takes the new modules.
        rows (list): the rows of the replacement table, all of them.
    """

    root: pathlib.Path
    package: str
    upstream_package: str
    rows: list[Replacement]

    def text(self, module: str) -> str:
        """Read one of the fork's modules.

        Args:
            module (str): absolute dotted name.

        Returns:
            str: its source.
        """
        file = Origins(self.root).file(module)
        if file is None:
            raise PatchError(f"the fork has no module {module}")
        return file.read_text(encoding="utf-8")

    def is_patchwork(self, module: str) -> bool:
        """Tell whether a module's functions go into existing files of upstream."""
        return any(row.our_module == module for row in self.rows)

    def upstream_of(self, module: str, name: str | None) -> tuple[str, str | None]:
        """Translate an import from the fork into an import from upstream.

        Args:
            module (str): absolute module that the fork imports, or imports from.
            name (str | None): the name taken out of it, if one is.

        Returns:
            tuple[str, str | None]: module and name as upstream has them.

        Raises:
            PatchError: if it names something that does not go upstream.
        """
        if module != FORK and not module.startswith(FORK + "."):
            return module, name
        if module == self.package:
            if name is not None and self._is_module(f"{module}.{name}"):
                return self.upstream_package, name
        elif module.startswith(self.package + "."):
            if self.is_patchwork(module):
                found = self.counterpart(module, name)
                if found is not None:
                    return found
            else:
                return self.upstream_package + module[len(self.package) :], name
        raise PatchError(f"{name or 'everything'} of {module} does not go upstream, yet carried code imports it")

    def counterpart(self, module: str, name: str | None) -> tuple[str, str] | None:
        """Find what upstream calls something that a patchwork module defines.

        Args:
            module (str): the patchwork module.
            name (str | None): a function or class of it, if one is named.

        Returns:
            tuple[str, str] | None: upstream's module and name; None for a private definition.
        """
        for row in self.rows:
            if row.our_module == module and row.our_name.split(".")[0] == name:
                return row.module, row.name.split(".")[0]
        return None

    def _is_module(self, module: str) -> bool:
        return Origins(self.root).file(module) is not None
