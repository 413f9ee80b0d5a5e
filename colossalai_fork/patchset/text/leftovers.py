"""What a change leaves without any use: functions and methods that something used before and nothing uses now."""

from __future__ import annotations

import ast
import pathlib
from typing import Collection, Iterator

from .modules import python_files
from .syntax import parse

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Uses:
    """The names that a source tree's code uses.

    Args:
        root (pathlib.Path): the source tree.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self._trees = {
            file.relative_to(root).as_posix(): parse(file.read_text(encoding="utf-8")) for file in python_files(root)
        }
        product = {file: tree for file, tree in self._trees.items() if file.startswith("colossalai/")}
        self.definitions = [(file, name) for file, tree in product.items() for name, _ in _functions(tree)]

    def without(self, unused: Collection[tuple[str, str]] = ()) -> tuple[set[str], set[str]]:
        """Collect the names used by everything but some functions.

        Args:
            unused (Collection[tuple[str, str]]): file and qualified name of functions that do not count.

        Returns:
            tuple[set[str], set[str]]: names that stand alone or are imported, and names behind a dot. A string that
                is a name counts as both.
        """
        bare, dotted = set(), set()
        for file, tree in self._trees.items():
            skipped = {node for name, node in _functions(tree) if (file, name) in unused}
            pending = [tree]
            while pending:
                node = pending.pop()
                if node in skipped:
                    continue
                pending.extend(ast.iter_child_nodes(node))
                if isinstance(node, ast.Name):
                    bare.add(node.id)
                elif isinstance(node, ast.Attribute):
                    dotted.add(node.attr)
                elif isinstance(node, ast.alias):
                    bare.add(node.name)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                    bare.add(node.value)
                    dotted.add(node.value)
        return bare, dotted


def without_use(before: Uses, after: Uses) -> list[tuple[str, str]]:
    """Find the functions that lost their last use, those included that only such functions use.

    Args:
        before (Uses): the tree before the change.
        after (Uses): the tree after it.

    Returns:
        list[tuple[str, str]]: file and qualified name of each.
    """
    used_before, unused = before.without(), []
    candidates = [definition for definition in after.definitions if _is_used(definition[1], *used_before)]
    while True:
        used = after.without(unused)
        found = [definition for definition in candidates if not _is_used(definition[1], *used)]
        if found == unused:
            return sorted(unused)
        unused = found


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        if isinstance(node, _FUNCTIONS):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{child.name}", child) for child in node.body if isinstance(child, _FUNCTIONS))


def _is_used(qualified_name: str, bare: set[str], dotted: set[str]) -> bool:
    # A method is reached through a dot only; a function also by its own name.
    owner, _, name = qualified_name.rpartition(".")
    return name in dotted or (not owner and name in bare)
