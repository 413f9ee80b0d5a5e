"""Finds one place in a function by its structure and edits it there with statements of our own.

A patch that edits a function says where in terms of what the code does ("the statement that calls X", "from the
assignment of Y to the one that updates Z"), and brings the new statements. Nothing of the code that it edits is carried.
"""

import ast
import dataclasses
import textwrap
from typing import Any, Callable

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from ..errors import DriftError
from . import names, transplant, wording
from .syntax import parse

BEFORE, AFTER, INSTEAD = "before", "after", "instead"
_SHOWN = 60


@dataclasses.dataclass(frozen=True)
class Edit:
    """One change to one function.

    Args:
        function (str): its qualified name.
        action (str): whether the new statements go ``before`` or ``after`` the place or ``instead`` of it.
        first (Callable[[libcst.CSTNode], bool]): tells the statement that is the place, or with which it begins.
        text (str): the new statements.
        last (Callable[[libcst.CSTNode], bool] | None): tells the statement with which the place ends; the same if None.
        what (str): what the place is, for messages.
    """

    function: str
    action: str
    first: Callable[[cst.CSTNode], bool]
    text: str
    last: Callable[[cst.CSTNode], bool] | None = None
    what: str = "the place"


@dataclasses.dataclass(frozen=True)
class Method:
    """One method that is added to a class.

    Args:
        owner (str): the class.
        text (str): the method.
        after (tuple[str, ...]): methods to stand behind, the most wanted first; at the end of the class otherwise.
    """

    owner: str
    text: str
    after: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        """str: the method's qualified name."""
        return f"{self.owner}.{ast.parse(textwrap.dedent(self.text)).body[0].name}"


@dataclasses.dataclass(frozen=True)
class Change:
    """The edits of one file.

    Args:
        file (str): the file, from the root of the tree.
        edits (list[Edit | Method]): what happens to it, in order.
        imports (tuple[names.Import, ...]): what the new statements need, as written in this file.
        optional (bool): whether a tree may lack the file, as a released sdist lacks most tests.
    """

    file: str
    edits: list[Edit | Method]
    imports: tuple[names.Import, ...] = ()
    optional: bool = False


def calls(name: str) -> Callable[[cst.CSTNode], bool]:
    """Tell the statements that call something.

    Args:
        name (str): the last part of what is called: ``update`` for ``optimizer.state.update(...)``.

    Returns:
        Callable[[libcst.CSTNode], bool]: the test. Statements inside of a statement do not count.
    """
    return lambda statement: any(_last_name(node.func) == name for node in _own(statement, cst.Call))


def assigns(name: str) -> Callable[[cst.CSTNode], bool]:
    """Tell the statements that assign to a variable.

    Args:
        name (str): the variable or attribute; of an attribute the last part.

    Returns:
        Callable[[libcst.CSTNode], bool]: the test.
    """
    return lambda statement: any(
        _last_name(target.target) == name for node in _own(statement, cst.Assign) for target in node.targets
    )


def mentions(text: str) -> Callable[[cst.CSTNode], bool]:
    """Tell the statements that have a string of exactly this text, for example as the key of a dictionary.

    Args:
        text (str): the string.

    Returns:
        Callable[[libcst.CSTNode], bool]: the test.
    """
    return lambda statement: any(node.evaluated_value == text for node in _own(statement, cst.SimpleString))


def reads(name: str, index: str) -> Callable[[cst.CSTNode], bool]:
    """Tell the statements that take an item out of something.

    Args:
        name (str): what the item is taken out of.
        index (str): the variable between the brackets.

    Returns:
        Callable[[libcst.CSTNode], bool]: the test.
    """
    return lambda statement: any(
        _last_name(node.value) == name
        and isinstance(node.slice[0].slice, cst.Index)
        and _last_name(node.slice[0].slice.value) == index
        for node in _own(statement, cst.Subscript)
    )


def asks(name: str) -> Callable[[cst.CSTNode], bool]:
    """Tell the ``if`` statements whose condition is about something.

    Args:
        name (str): the variable or attribute.

    Returns:
        Callable[[libcst.CSTNode], bool]: the test.
    """
    return lambda statement: isinstance(statement, cst.If) and any(
        _last_name(node) == name for node in _own(statement.test, (cst.Name, cst.Attribute))
    )


def is_a(kind: type[cst.CSTNode]) -> Callable[[cst.CSTNode], bool]:
    """Tell the statements of a kind.

    Args:
        kind (type): a class of LibCST's, for example ``cst.Raise`` or ``cst.For``.

    Returns:
        Callable[[libcst.CSTNode], bool]: the test.
    """
    return lambda statement: isinstance(statement, kind) or any(True for _ in _own(statement, kind))


def both(*tests: Callable[[cst.CSTNode], bool]) -> Callable[[cst.CSTNode], bool]:
    """Tell the statements for which several tests hold.

    Args:
        *tests (Callable[[libcst.CSTNode], bool]): the tests.

    Returns:
        Callable[[libcst.CSTNode], bool]: the test.
    """
    return lambda statement: all(test(statement) for test in tests)


def apply(text: str, change: Change) -> str:
    """Carry out the edits of one file that are not in it yet.

    Args:
        text (str): the file.
        change (Change): the edits.

    Returns:
        str: the new text, without the imports.

    Raises:
        DriftError: showing the lines, if a place is not found exactly once.
    """
    for edit in change.edits:
        if not is_done(text, edit):
            text = _apply(text, edit, change.file)
    return text


def is_done(text: str, edit: Edit | Method) -> bool:
    """Tell whether a file has an edit, in these words or with other messages and comments.

    Args:
        text (str): the file.
        edit (Edit | Method): the edit.

    Returns:
        bool: whether it does.
    """
    return all(theirs is not None for _, theirs in _pairs(text, edit))


def difference(text: str, edit: Edit | Method) -> str:
    """Show how an edit that is done differs from what it says here.

    Args:
        text (str): the file.
        edit (Edit | Method): the edit.

    Returns:
        str: a unified diff; nothing if the code is the same, comments and docstrings aside.
    """
    return "\n".join(
        wording.differences(ast.unparse(ours), ast.unparse(theirs), edit.function)
        for ours, theirs in _pairs(text, edit)
        if theirs is not None and wording.code(ours) != wording.code(theirs)
    )


def function_in(text: str, edit: Edit | Method) -> str:
    """Find the function that an edit is about.

    Args:
        text (str): the file.
        edit (Edit | Method): the edit.

    Returns:
        str: its source, or nothing if the file does not have it.
    """
    node = transplant.find(transplant.parse(text, "the file"), edit.function)
    return transplant.text(node) if node is not None else ""


def _pairs(text: str, edit: Edit | Method) -> list[tuple[ast.stmt, ast.stmt | None]]:
    present = function_in(text, edit)
    ours = parse(textwrap.dedent(edit.text)).body
    if isinstance(edit, Method):
        theirs = parse(present).body if present else []
    else:
        theirs = [node for node in ast.walk(parse(present)) if isinstance(node, ast.stmt)]
    found = {wording.code(node, worded=False): node for node in theirs}
    return [(node, found.get(wording.code(node, worded=False))) for node in ours]


def _apply(text: str, edit: Edit | Method, file: str) -> str:
    if isinstance(edit, Method):
        return _add_method(text, edit, file)
    module = transplant.parse(text, file)
    function = transplant.find(module, edit.function)
    if function is None:
        raise DriftError([f"{file} has no {edit.function}"])
    first, last = _place(function, edit, lambda found: _show(module, text, file, edit, function, found))
    rewritten = function.visit(_Rewriter(first, last, _statements(edit.text), edit.action))
    return transplant.replace(module, edit.function, rewritten).code


def _statements(text: str) -> list[cst.BaseStatement]:
    # Parsed inside of a block: at the outermost level, a comment above the first statement is the file's and not its own.
    block = cst.parse_module("if True:\n" + textwrap.indent(textwrap.dedent(text).strip("\n"), "    ") + "\n")
    return list(block.body[0].body.body)


def _add_method(text: str, method: Method, file: str) -> str:
    if function_in(text, method):
        raise DriftError([f"{file} has another {method.function} already"])
    # Parsed inside of a class, so that the docstring is indented as it will be there.
    owner = cst.parse_module("class _:\n" + textwrap.indent(textwrap.dedent(method.text).strip("\n") + "\n", "    "))
    statement = owner.body[0].body.body[0]
    return transplant.add_method(transplant.parse(text, file), method.owner, statement, method.after).code


def _place(
    function: cst.CSTNode, edit: Edit, refuse: Callable[[list[cst.BaseStatement]], DriftError]
) -> tuple[cst.BaseStatement, cst.BaseStatement]:
    blocks = _Blocks()
    function.visit(blocks)
    firsts = [(block, node) for block in blocks.found for node in block.body if edit.first(node)]
    if len(firsts) != 1:
        raise refuse([node for _, node in firsts])
    block, first = firsts[0]
    if edit.last is None:
        return first, first
    following = block.body[list(block.body).index(first) :]
    lasts = [node for node in following if edit.last(node)]
    if len(lasts) != 1:
        raise refuse(lasts or [first])
    return first, lasts[0]


def _show(
    module: cst.Module, text: str, file: str, edit: Edit, function: cst.CSTNode, found: list[cst.BaseStatement]
) -> DriftError:
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    lines = {node: positions[node].start.line for node in [function, *found]}
    where = f"{file}:{lines[function]}: {edit.function}"
    every = text.splitlines()
    shown = [f"{lines[node]:5}: {every[lines[node] - 1]}" for node in found]
    if not shown:
        code = transplant.text(function).splitlines()[:_SHOWN]
        shown = [f"{number:5}: {line}" for number, line in enumerate(code, lines[function])]
    count = f"{len(found)} times" if len(found) > 1 else "only in part" if found else "nowhere"
    return DriftError([f"{where} has {edit.what} {count}\n" + "\n".join(shown)])


class _Blocks(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found = []

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self.found.append(node)


class _Rewriter(cst.CSTTransformer):
    def __init__(
        self, first: cst.BaseStatement, last: cst.BaseStatement, statements: list[cst.BaseStatement], action: str
    ) -> None:
        self._first, self._last, self._new, self._action = first, last, statements, action

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        old = list(original_node.body)
        if not any(node is self._first for node in old):
            return updated_node
        start = next(index for index, node in enumerate(old) if node is self._first)
        stop = next(index for index, node in enumerate(old) if node is self._last) + 1
        body, new = list(updated_node.body), list(self._new)
        if self._action == AFTER:
            return updated_node.with_changes(body=[*body[:stop], *new, *body[stop:]])
        # What is new stands where the place began; a comment stays with its statement, or goes with it.
        leading = list(body[start].leading_lines)
        if self._action == INSTEAD:
            blank = [line for line in leading if line.comment is None]
            new[0] = new[0].with_changes(leading_lines=[*blank[:1], *new[0].leading_lines])
            return updated_node.with_changes(body=[*body[:start], *new, *body[stop:]])
        blank = [line for line in leading if line.comment is None]
        new[0] = new[0].with_changes(leading_lines=[*blank, *new[0].leading_lines])
        body[start] = body[start].with_changes(leading_lines=[line for line in leading if line.comment is not None])
        return updated_node.with_changes(body=[*body[:start], *new, *body[start:]])


class _OwnParts(cst.CSTVisitor):
    def __init__(self, kind: type[cst.CSTNode] | tuple[type[cst.CSTNode], ...]) -> None:
        self._kind, self.found = kind, []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.IndentedBlock, cst.SimpleStatementSuite)):
            return False
        if isinstance(node, self._kind):
            self.found.append(node)
        return True


def _own(statement: cst.CSTNode, kind: type[cst.CSTNode] | tuple[type[cst.CSTNode], ...]) -> list[Any]:
    parts = _OwnParts(kind)
    statement.visit(parts)
    return parts.found


def _last_name(node: cst.CSTNode) -> str | None:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else None
