"""Refuses what the oldest Python that ColossalAI supports cannot run, as far as the source shows it."""

import ast

from ..errors import PatchError
from .syntax import parse

PYTHON_FLOOR = (3, 8)
# Subscripted when an annotation or an alias is evaluated, which Python 3.8 cannot do.
_BUILTIN_COLLECTIONS = {"dict", "frozenset", "list", "set", "tuple", "type"}
_WOULD_NOT_RUN = f"would not be valid for Python {'.'.join(map(str, PYTHON_FLOOR))}"


def check_syntax(file: str, text: str) -> None:
    """Refuse source that does not compile there.

    Args:
        file (str): the file, for messages.
        text (str): its source.

    Raises:
        PatchError: if it does not.
    """
    try:
        parse(text, filename=file, feature_version=PYTHON_FLOOR)
    except SyntaxError as error:
        raise PatchError(f"{file} {_WOULD_NOT_RUN}: {error}") from error


def check_names(file: str, text: str) -> None:
    """Refuse source that compiles there but fails when it runs.

    Args:
        file (str): the file, for messages.
        text (str): its source, all of it the fork's.

    Raises:
        PatchError: if it uses a builtin collection as a generic type, ``|`` between types, or ``zip(strict=)``.
    """
    for node in ast.walk(parse(text)):
        problem = _problem(node)
        if problem is not None:
            raise PatchError(f"{file} {_WOULD_NOT_RUN}: line {node.lineno} has {problem}")


def _problem(node: ast.AST) -> str | None:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _BUILTIN_COLLECTIONS:
        return f"{node.value.id}[…]"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip" and node.keywords:
        return "zip(strict=…)"
    annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    for part in (part for annotation in annotations if annotation is not None for part in ast.walk(annotation)):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
            return "a type with |"
    return None
