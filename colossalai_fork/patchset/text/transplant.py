"""Puts functions and methods into a source file and takes them out, leaving every other byte as it was."""

import functools
from typing import Callable, Sequence, TypeVar

import libcst as cst

from ..errors import PatchError

_Owner = TypeVar("_Owner", cst.Module, cst.ClassDef)
_BLANK = cst.EmptyLine(indent=False)


@functools.lru_cache(maxsize=256)
def parse(source: str, name: str) -> cst.Module:
    """Parse a source text. Trees cannot be changed, so that each text is parsed once.

    Args:
        source (str): a whole module.
        name (str): what to call it in messages.

    Returns:
        libcst.Module: the lossless tree.

    Raises:
        PatchError: if it is not Python.
    """
    try:
        return cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise PatchError(f"{name} cannot be parsed: {error}") from error


def find(module: cst.Module, qualified_name: str) -> cst.CSTNode | None:
    """Find a function, class or assignment.

    Args:
        module (libcst.Module): where to look.
        qualified_name (str): for example ``GeneralCheckpointIO.load_sharded_optimizer``.

    Returns:
        libcst.CSTNode | None: the one statement that defines the name, or None.

    Raises:
        PatchError: if several statements define it, so that none can be replaced safely.
    """
    *parents, last = qualified_name.split(".")
    body = module.body
    for parent in parents:
        owner = _only([node for node in body if isinstance(node, cst.ClassDef) and node.name.value == parent], parent)
        if owner is None:
            return None
        body = owner.body.body
    return _only([node for node in body if last in defined_by(node)], qualified_name)


def defined_by(statement: cst.CSTNode) -> set[str]:
    """Name what one statement of a module or class defines.

    Args:
        statement (libcst.CSTNode): a statement.

    Returns:
        set[str]: names of the function, the class or the variables; empty for anything else.
    """
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return {statement.name.value}
    found = set()
    if isinstance(statement, cst.SimpleStatementLine):
        for part in statement.body:
            targets = [t.target for t in part.targets] if isinstance(part, cst.Assign) else []
            targets += [part.target] if isinstance(part, cst.AnnAssign) else []
            found.update(target.value for target in targets if isinstance(target, cst.Name))
    return found


def text(statement: cst.CSTNode) -> str:
    """Write one statement as a text of its own.

    Args:
        statement (libcst.CSTNode): a statement at any depth.

    Returns:
        str: its source from column 0, without the lines above it.
    """
    return cst.Module(body=[statement.with_changes(leading_lines=())]).code


def replace(module: cst.Module, qualified_name: str, statement: cst.CSTNode) -> cst.Module:
    """Put a statement in the place of the one that defines a name.

    Args:
        module (libcst.Module): the file.
        qualified_name (str): the function or method to replace.
        statement (libcst.CSTNode): what to put there; it takes the name of what it replaces, and the comment lines
            right above either of them go and come with it.

    Returns:
        libcst.Module: the changed file.
    """
    original = find(module, qualified_name)
    if original is None:
        raise PatchError(f"there is no {qualified_name} to replace")
    kept, _ = _split_lines(original.leading_lines)
    _, own = _split_lines(statement.leading_lines)
    statement = renamed(statement, qualified_name.rpartition(".")[2]).with_changes(leading_lines=[*kept, *own])
    return _in_body(
        module,
        qualified_name.split(".")[:-1],
        lambda body: [statement if node is original else node for node in body],
    )


def add_method(
    module: cst.Module,
    class_name: str,
    statement: cst.FunctionDef,
    after: Sequence[str] = (),
    before: Sequence[str] = (),
) -> cst.Module:
    """Add a method to a class.

    Args:
        module (libcst.Module): the file.
        class_name (str): the class.
        statement (libcst.FunctionDef): the method.
        after (Sequence[str]): methods to stand behind, the most wanted first.
        before (Sequence[str]): methods to stand before if the class has none of those. If it has none of these either, the
            method goes to the end of the class.

    Returns:
        libcst.Module: the changed file.
    """
    _, own = _split_lines(statement.leading_lines)
    statement = statement.with_changes(leading_lines=[_BLANK, *own])

    def insert(body: list[cst.CSTNode]) -> list[cst.CSTNode]:
        places = {name: position for position, node in enumerate(body) for name in defined_by(node)}
        for name in after:
            if name in places:
                position = places[name] + 1
                return [*body[:position], statement, *body[position:]]
        for name in before:
            if name in places:
                position = places[name]
                kept, attached = _split_lines(body[position].leading_lines)
                follower = body[position].with_changes(leading_lines=[_BLANK, *attached])
                return [
                    *body[:position],
                    statement.with_changes(leading_lines=[*kept, *own]),
                    follower,
                    *body[position + 1 :],
                ]
        return [*body, statement]

    if find(module, class_name) is None:
        raise PatchError(f"there is no class {class_name} to add a method to")
    return _in_body(module, class_name.split("."), insert)


def add_before(module: cst.Module, statement: cst.CSTNode, position: int) -> cst.Module:
    """Add a function, class or variable to the outermost level of a file.

    Args:
        module (libcst.Module): the file.
        statement (libcst.CSTNode): what to add.
        position (int): index in the module's body of the statement that it shall stand before; the body's length for
            the end.

    Returns:
        libcst.Module: the changed file.
    """
    body = list(module.body)
    _, own = _split_lines(statement.leading_lines)
    compound = isinstance(statement, (cst.FunctionDef, cst.ClassDef))
    blanks = 2 if compound or (position and not _is_simple(body[position - 1])) else 1
    statement = statement.with_changes(leading_lines=[_BLANK] * blanks + list(own))
    if position < len(body):
        following = body[position]
        _, attached = _split_lines(following.leading_lines)
        present = len(following.leading_lines) - len(attached)
        missing = max(0, (2 if compound else blanks) - present)
        body[position] = following.with_changes(leading_lines=[_BLANK] * missing + list(following.leading_lines))
    return module.with_changes(body=[*body[:position], statement, *body[position:]])


def remove(module: cst.Module, qualified_name: str) -> cst.Module:
    """Take out a function, method or variable together with the comment lines right above it.

    Args:
        module (libcst.Module): the file.
        qualified_name (str): what to take out.

    Returns:
        libcst.Module: the changed file. Comments that a blank line separates from it stay; a class that had nothing
        else
            gets a ``pass``.
    """
    original = find(module, qualified_name)
    if original is None:
        raise PatchError(f"there is no {qualified_name} to take out")

    def without(body: list[cst.CSTNode]) -> list[cst.CSTNode]:
        position = next(index for index, node in enumerate(body) if node is original)
        kept, _ = _split_lines(original.leading_lines)
        rest = list(body[position + 1 :])
        if rest and any(line.comment for line in kept):
            rest[0] = rest[0].with_changes(leading_lines=[*kept, *rest[0].leading_lines])
        left = [*body[:position], *rest]
        return left or [cst.SimpleStatementLine([cst.Pass()])]

    return _in_body(module, qualified_name.split(".")[:-1], without)


def renamed(statement: cst.CSTNode, name: str) -> cst.CSTNode:
    """Give a function or class another name.

    Args:
        statement (libcst.CSTNode): a statement; one that is neither is returned as it is.
        name (str): its name from now on.

    Returns:
        libcst.CSTNode: the statement.
    """
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return statement.with_changes(name=cst.Name(name))
    return statement


def _split_lines(lines: Sequence[cst.EmptyLine]) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    # Comments that touch the statement belong to it; what a blank line separates from it (a section's banner) does not.
    cut = len(lines)
    while cut and lines[cut - 1].comment is not None:
        cut -= 1
    return list(lines[:cut]), list(lines[cut:])


def _in_body(owner: _Owner, parents: list[str], change: Callable[[list[cst.CSTNode]], list[cst.CSTNode]]) -> _Owner:
    if not parents:
        if isinstance(owner, cst.Module):
            return owner.with_changes(body=change(list(owner.body)))
        return owner.with_changes(body=owner.body.with_changes(body=change(list(owner.body.body))))

    def descend(body: list[cst.CSTNode]) -> list[cst.CSTNode]:
        return [
            (
                _in_body(node, parents[1:], change)
                if isinstance(node, cst.ClassDef) and node.name.value == parents[0]
                else node
            )
            for node in body
        ]

    return _in_body(owner, [], descend)


def _only(found: list[cst.CSTNode], name: str) -> cst.CSTNode | None:
    if len(found) > 1:
        raise PatchError(f"{name} is defined {len(found)} times")
    return found[0] if found else None


def _is_simple(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine)
