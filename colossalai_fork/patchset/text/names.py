"""Which module-level names a piece of Python source uses, imports and defines.

Python's own symbol tables decide what is local and what is not, so that shadowing, comprehensions, closures and class
bodies are judged as the interpreter judges them.
"""

import ast
import builtins
import dataclasses
from typing import Iterator

from .syntax import parse, symbols


@dataclasses.dataclass(frozen=True)
class Import:
    """One name bound by a module-level import.

    Args:
        bound (str): the name that the importing module gets.
        module (str): the module imported, or imported from; relative ones keep their dots.
        name (str | None): the name taken out of the module; None when the module itself is bound.
    """

    bound: str
    module: str
    name: str | None


def used(source: str) -> set[str]:
    """Find the names that a source text reads from its module or from the builtins.

    Args:
        source (str): a whole module, or one function or class that starts at column 0.

    Returns:
        set[str]: the names, builtins included. Names in string annotations and in ``__all__`` count as used.
    """
    found = set(_strings_that_name(source))
    pending = [symbols(source)]
    while pending:
        table = pending.pop()
        at_module_level = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (at_module_level or symbol.is_global()):
                found.add(symbol.get_name())
        pending.extend(table.get_children())
    return found


def free(source: str) -> set[str]:
    """Find the names that a function or class needs from its surroundings.

    Args:
        source (str): one function or class that starts at column 0.

    Returns:
        set[str]: the names used, without builtins and without what the text itself defines.
    """
    return {name for name in used(source) if not hasattr(builtins, name)} - set(definitions(source))


def imports(source: str) -> dict[str, Import]:
    """List the names that a module binds by imports outside functions and classes.

    Args:
        source (str): a whole module.

    Returns:
        dict[str, Import]: the imports by bound name; a later one wins, as it does in Python.
    """
    found = {}
    for statement in _module_level(parse(source).body):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                bound = alias.asname or alias.name.split(".")[0]
                found[bound] = Import(bound, alias.name if alias.asname else bound, None)
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            for alias in statement.names:
                bound = alias.asname or alias.name
                found[bound] = Import(bound, module, alias.name)
    return found


def definitions(source: str) -> dict[str, int]:
    """List the functions, classes and variables that a module defines at its outermost level.

    Args:
        source (str): a whole module.

    Returns:
        dict[str, int]: position of the defining statement in the module body by name; the last one wins.
    """
    found = {}
    for position, statement in enumerate(parse(source).body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[statement.name] = position
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                found.update({node.id: position for node in ast.walk(target) if isinstance(node, ast.Name)})
    return found


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    # Imports under "if TYPE_CHECKING", "try" and "with" bind module-level names too.
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody", "handlers"):
            nested = getattr(statement, field, None)
            if nested and not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                for child in nested:
                    yield from _module_level(child.body if isinstance(child, ast.ExceptHandler) else [child])


def _strings_that_name(source: str) -> Iterator[str]:
    for node in ast.walk(parse(source)):
        annotations = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
            annotations = [a.annotation for a in every + [arguments.vararg, arguments.kwarg] if a is not None]
            annotations.append(node.returns)
        elif isinstance(node, ast.AnnAssign):
            annotations = [node.annotation]
        elif isinstance(node, (ast.Assign, ast.AugAssign)) and _is_export_list(node):
            yield from (n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant) and type(n.value) is str)
        for annotation in filter(None, annotations):
            for part in ast.walk(annotation):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield from _names_in(part.value)


def _is_export_list(node: ast.Assign | ast.AugAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _names_in(text: str) -> set[str]:
    try:
        return {node.id for node in ast.walk(parse(text, mode="eval")) if isinstance(node, ast.Name)}
    except SyntaxError:
        return set()
