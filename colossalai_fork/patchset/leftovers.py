"""What a change leaves without any use: functions and methods that something named before and nothing names now."""

import ast

from .modules import python_files
from .syntax import parse


def mentioned(root):
    """Collect every name that the tree's sources use: names, attributes, imports, strings that are names.

    Args:
        root (pathlib.Path): the source tree.

    Returns:
        set[str]: the names.
    """
    found = set()
    for file in python_files(root):
        for node in ast.walk(parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.alias):
                found.update(node.name.split("."))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.add(node.value)
    return found


def without_use(root, before):
    """Find definitions that lost their last use.

    Args:
        root (pathlib.Path): the source tree after the change.
        before (set[str]): what :func:`mentioned` found before it.

    Returns:
        list[tuple[str, str]]: file and name of each function, method or class that was named before and is not now.
    """
    lost = before - mentioned(root)
    found = []
    for file in python_files(root):
        for node in ast.walk(parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name in lost:
                found.append((file.relative_to(root).as_posix(), node.name))
    return sorted(found)
