"""Adds the imports that a changed file now needs and takes out those that the change left without use."""

import pathlib

import isort
import libcst as cst

from . import names
from .modules import imported_from, module_of
from .transplant import parse

# ColossalAI's own settings, for a tree that came without its .isort.cfg (a released sdist does).
_UPSTREAM_SETTINGS = {
    "line_length": 120,
    "multi_line_output": 3,
    "include_trailing_comma": True,
    "ignore_comments": True,
    "honor_noqa": True,
}


def unused(source: str) -> set[str]:
    """Find module-level imports whose name nothing in the file reads.

    Args:
        source (str): a whole module.

    Returns:
        set[str]: the bound names.
    """
    return set(names.imports(source)) - names.used(source) - {"annotations"}


def add(source: str, wanted: list[names.Import]) -> str:
    """Add imports, each behind the last one from the same package; :func:`sort` then brings them to their places.

    Args:
        source (str): a whole module.
        wanted (list[names.Import]): imports with modules written as they shall stand in this file.

    Returns:
        str: the changed source.
    """
    for item in wanted:
        module = parse(source, "the file that needs imports")
        statement = cst.parse_statement(_statement(item))
        position = _position(module, item.module.split(".")[0])
        source = module.with_changes(body=[*module.body[:position], statement, *module.body[position:]]).code
    return source


def _position(module: cst.Module, package: str) -> int:
    leading, beside = 0, None
    for index, node in enumerate(module.body):
        if leading == index and (_is_import(node) or (index == 0 and _is_docstring(node))):
            leading = index + 1
        if _is_import(node) and any(_package(part) == package for part in node.body):
            beside = index + 1
    return leading if beside is None else beside


def _package(part: cst.Import | cst.ImportFrom) -> str:
    if isinstance(part, cst.ImportFrom):
        return "" if part.relative else cst.helpers.get_full_name_for_node(part.module).split(".")[0]
    return cst.helpers.get_full_name_for_node(part.names[0].name).split(".")[0]


def remove(source: str, bound: set[str]) -> str:
    """Take out module-level imports.

    Args:
        source (str): a whole module.
        bound (set[str]): names that shall no longer be bound. Imports inside ``if`` and ``try`` are left alone.

    Returns:
        str: the changed source.
    """
    if not bound:
        return source
    module = parse(source, "the file that loses imports")
    body = []
    lines = ()
    for node in module.body:
        node = node.with_changes(leading_lines=[*lines, *node.leading_lines]) if lines else node
        kept = _without(node, bound) if _is_import(node) else node
        # Comments above an import that goes may be about the whole block.
        lines = node.leading_lines if kept is None and any(line.comment for line in node.leading_lines) else ()
        if kept is not None:
            body.append(kept)
    return module.with_changes(body=body).code


def sort(source: str, root: pathlib.Path) -> str:
    """Bring the imports into the order that the tree's own isort settings ask for.

    Args:
        source (str): a whole module.
        root (pathlib.Path): the source tree.

    Returns:
        str: the sorted source.
    """
    return isort.code(source, config=_settings(root))


def settle(root: pathlib.Path, file: str, before: str, after: str) -> str:
    """Bring a changed file's imports in order.

    Args:
        root (pathlib.Path): the source tree, with the file as it was before.
        file (str): the file, relative to the root.
        before (str): its text before the change.
        after (str): its text after the change.

    Returns:
        str: the text without imports that the change left unused, sorted if it was sorted before.
    """
    newly_unused = unused(after) - unused(before)
    if newly_unused:
        taken_elsewhere = imported_from(root, module_of(file))
        newly_unused = set() if "*" in taken_elsewhere else newly_unused - taken_elsewhere
        after = remove(after, newly_unused)
    return sort(after, root) if is_sorted(before, root) else after


def is_sorted(source: str, root: pathlib.Path) -> bool:
    """Tell whether :func:`sort` would leave a file as it is."""
    return sort(source, root) == source


def _settings(root: pathlib.Path) -> isort.Config:
    root = pathlib.Path(root)
    if (root / ".isort.cfg").is_file():
        return isort.Config(settings_path=str(root), profile="black")
    return isort.Config(directory=str(root), src_paths=(root / "src", root), profile="black", **_UPSTREAM_SETTINGS)


def _statement(item: names.Import) -> str:
    if item.name is None:
        plain = item.module if item.bound == item.module.split(".")[0] else f"{item.module} as {item.bound}"
        return f"import {plain}\n"
    alias = item.name if item.name == item.bound else f"{item.name} as {item.bound}"
    return f"from {item.module} import {alias}\n"


def _is_import(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and all(
        isinstance(p, (cst.Import, cst.ImportFrom)) for p in node.body
    )


def _is_docstring(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.SimpleStatementLine)
        and isinstance(node.body[0], cst.Expr)
        and isinstance(node.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )


def _without(node: cst.SimpleStatementLine, bound: set[str]) -> cst.SimpleStatementLine | None:
    parts = []
    for part in node.body:
        if isinstance(part, cst.ImportFrom) and isinstance(part.names, cst.ImportStar):
            parts.append(part)
            continue
        kept = [alias for alias in part.names if _bound(alias) not in bound]
        if len(kept) == len(part.names):
            parts.append(part)
        elif kept:
            # With the comma of the last one goes the line break before the closing bracket.
            kept[-1] = kept[-1].with_changes(comma=part.names[-1].comma)
            parts.append(part.with_changes(names=kept))
    return node.with_changes(body=parts) if parts else None


def _bound(alias: cst.ImportAlias) -> str:
    if alias.asname is not None:
        return alias.asname.name.value
    return cst.helpers.get_full_name_for_node(alias.name).split(".")[0]
