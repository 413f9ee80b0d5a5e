"""What dotted module names mean inside one source tree: files, relative imports, and where a name was first defined."""

import ast
import functools
import pathlib
from typing import Iterator

from ..errors import PatchError
from . import names
from .syntax import parse


def absolute(module: str, importer: str, importer_is_package: bool = False) -> str:
    """Turn the module of an import statement into an absolute one.

    Args:
        module (str): the module as written, with leading dots when relative.
        importer (str): dotted name of the module that holds the statement.
        importer_is_package (bool): whether that module is an ``__init__.py``.

    Returns:
        str: the absolute dotted name.

    Raises:
        PatchError: if the dots lead above the outermost package.
    """
    level = len(module) - len(module.lstrip("."))
    if level == 0:
        return module
    package = importer.split(".")
    climb = level - 1 if importer_is_package else level
    if climb >= len(package) + importer_is_package:
        raise PatchError(f"{importer} imports from {module}, which lies outside its package")
    parts = package[: len(package) - climb] + [module.lstrip(".")]
    return ".".join(part for part in parts if part)


def as_written_in(module: str, importer: str) -> str:
    """Write an absolute module name the way ColossalAI does: relative to a sibling, absolute otherwise.

    Args:
        module (str): absolute dotted name.
        importer (str): dotted name of the module (not a package) that is to import it.

    Returns:
        str: the name to write after ``from``.
    """
    package = importer.rpartition(".")[0]
    prefix, _, last = module.rpartition(".")
    return f".{last}" if package and prefix == package else module


def module_of(file: str) -> str:
    """Name the module that a file of the tree holds.

    Args:
        file (str): path relative to the tree's root, with ``/``.

    Returns:
        str: absolute dotted name.
    """
    parts = pathlib.PurePosixPath(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Origins:
    """Follows a re-exported name to the module that defines it.

    Args:
        root (pathlib.Path): the source tree.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self._root = pathlib.Path(root)

    def file(self, module: str) -> pathlib.Path | None:
        """Find a module's file.

        Args:
            module (str): absolute dotted name.

        Returns:
            pathlib.Path | None: the file, or None if the tree does not have that module.
        """
        path = self._root.joinpath(*module.split("."))
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
        return None

    @functools.cache
    def of(self, module: str, name: str) -> tuple[str, str | None]:
        """Follow imports within the tree.

        Args:
            module (str): absolute dotted name of a module that ``name`` can be imported from.
            name (str): the name.

        Returns:
            tuple[str, str | None]: module and name as defined there; the name is None for a module itself. What lies
                outside the tree is returned as given.
        """
        if self.file(f"{module}.{name}") is not None:
            return f"{module}.{name}", None
        file = self.file(module)
        if file is None:
            return module, name
        source = file.read_text(encoding="utf-8")
        found = names.imports(source).get(name)
        if found is None or name in names.definitions(source):
            return module, name
        source_module = absolute(found.module, module, file.name == "__init__.py")
        if found.name is None:
            return source_module, None
        return self.of(source_module, found.name)


def imported_from(root: pathlib.Path, module: str) -> set[str]:
    """Find what the tree's other files take from a module.

    Args:
        root (pathlib.Path): the source tree.
        module (str): absolute dotted name.

    Returns:
        set[str]: the names; ``*`` where a file takes everything.
    """
    last, found = module.rpartition(".")[2], set()
    for file in python_files(root):
        source = file.read_text(encoding="utf-8")
        if f"{last} import" not in source:
            continue
        importer = module_of(file.relative_to(root).as_posix())
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.ImportFrom):
                written = "." * node.level + (node.module or "")
                if absolute(written, importer, file.name == "__init__.py") == module:
                    found.update(alias.name for alias in node.names)
    return found


def python_files(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """List the tree's own Python files: the package and its tests.

    Args:
        root (pathlib.Path): the source tree.

    Yields:
        pathlib.Path: the files, in a fixed order.
    """
    for folder in ("colossalai", "tests"):
        yield from sorted(pathlib.Path(root, folder).rglob("*.py"))


def slug(title: str) -> str:
    """Write a title as part of a file name, as git does.

    Args:
        title (str): the title.

    Returns:
        str: letters, digits and hyphens.
    """
    kept = "".join(character if character.isalnum() else "-" for character in title)
    return "-".join(part for part in kept.split("-") if part)[:52].rstrip("-")
