"""
Recognises a function by its source, without carrying that source.

A fingerprint is a list of digests: one for the signature with its decorators, one for each statement of the body.
Comments, docstrings, quotes and layout do not count. Digests are equal under Python 3.10 to 3.13. Because each statement has
its own, a function that is not known can be shown together with the very lines that are new in it.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
import types
from dataclasses import dataclass
from functools import cached_property
from typing import Iterator, Mapping

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Position in an expression, string prefix and type comments say nothing about what the code does.
_IGNORED_FIELDS = ("ctx", "kind", "type_comment", "type_ignores")


@dataclass(frozen=True)
class Part:
    """One piece of a function that has a digest of its own.

    Args:
        digest (str): 12 hexadecimal digits.
        line (int): number of the first line in the file.
        lines (tuple[str, ...]): the source, line by line.
    """

    digest: str
    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """The source of a function or class.

    Args:
        text (str): the definition as it stands in its file, indented as it is there.
        file (str): the file, for messages.
        first_line (int): number of its first line in that file.
        extra_wrappers (int): how many functions were wrapped around it that its source does not name.
        modules (frozenset[str]): names that stand for modules where the function was defined.
    """

    text: str
    file: str = "<source>"
    first_line: int = 1
    extra_wrappers: int = 0
    modules: frozenset[str] = frozenset()

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """tuple[Part, ...]: the signature, then each statement of the body."""
        lines = self.text.splitlines()
        node, offset = _parse(self.text)
        if node is None:
            return (Part(_digest(self.text), self.first_line, tuple(lines)),)

        def part(dump: str, first: int, last: int) -> Part:
            return Part(_digest(dump), self.first_line + first - 1, tuple(lines[first - 1 : last]))

        body = _without_docstring(node.body)
        signature_end = max(1, _first_line(node.body[0]) - offset - 1)
        parts = [part(_dump(node, without=("body",)), 1, signature_end)]
        parts += [part(_dump(s), _first_line(s) - offset, s.end_lineno - offset) for s in body]
        return tuple(parts)

    @property
    def fingerprint(self) -> str:
        """str: the digests, separated by blanks."""
        return " ".join(part.digest for part in self.parts)

    def is_same_code(self, other: Source) -> bool:
        """Compare with another function, no matter through which modules each of them reaches what it uses.

        Args:
            other (Source): the other one.

        Returns:
            bool: whether they differ at most in that one says ``module.name`` where the other says ``name``.
        """
        trees = [_parse(source.text)[0] for source in (self, other)]
        if None in trees or self.extra_wrappers or other.extra_wrappers:
            return False
        left, right = (_dump(_Unqualify(source.modules).visit(tree)) for source, tree in zip((self, other), trees))
        return left == right


class SourceUnavailable(Exception):
    """Python cannot tell the source of an object."""


def source_of(value: object) -> Source:
    """Find the source of an installed function, method or class.

    Args:
        value (object): a function, a class, or a static method, class method or property as the class's dictionary holds it.

    Returns:
        Source: where it is and what it says.

    Raises:
        SourceUnavailable: if there is none, as for builtins.
    """
    function, wrapper_count = (value.fget, 1) if isinstance(value, property) else (value, 0)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
        wrapper_count += 1
    try:
        lines, first_line = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function)
    except (OSError, TypeError) as error:
        raise SourceUnavailable(f"no source for {value!r}: {error}") from error
    text = "".join(lines)
    node, _ = _parse(text)
    # Decorators in the source may wrap the function. Whatever wraps it besides was put there by somebody else.
    decorator_count = len(node.decorator_list) if node is not None else 0
    names = getattr(function, "__globals__", {})
    modules = frozenset(name for name, held in names.items() if isinstance(held, types.ModuleType))
    return Source(text, file, first_line, max(0, wrapper_count - decorator_count), modules)


def find_in_module(text: str, qualified_name: str, file: str = "<source>") -> Source | None:
    """Find a function or class in the source of a module.

    Args:
        text (str): source of the module.
        qualified_name (str): for example ``GeneralCheckpointIO.load_sharded_optimizer``.
        file (str): the file, for messages.

    Returns:
        Source | None: its source; None if the module does not define it. Of several definitions the last counts.
    """
    scope = ast.parse(text)
    for name in qualified_name.split("."):
        found = [definition for definition in _definitions_in(scope) if definition.name == name]
        if not found:
            return None
        scope = found[-1]
    first_line = _first_line(scope)
    lines = text.splitlines(keepends=True)[first_line - 1 : scope.end_lineno]
    return Source("".join(lines), file, first_line)


def known_version(source: Source, known: Mapping[str, str]) -> str | None:
    """Look a function up among known fingerprints.

    Args:
        source (Source): the function.
        known (Mapping[str, str]): fingerprints by version.

    Returns:
        str | None: the version; None if it is none of them.
    """
    if source.extra_wrappers:
        return None
    return next((version for version, fingerprint in known.items() if fingerprint == source.fingerprint), None)


def difference(source: Source, known: Mapping[str, str]) -> str:
    """Show what is unknown in a function, as far as that can be told from digests.

    Args:
        source (Source): the installed function.
        known (Mapping[str, str]): fingerprints by version.

    Returns:
        str: in the form of a unified diff. Lines with ``+`` are the installed function's. What it no longer has is named by
            its number, since only its digest is known.
    """
    if source.extra_wrappers:
        return f"{source.file}:{source.first_line}: something is wrapped around this function"
    here = [part.digest for part in source.parts]
    matchers = {
        version: difflib.SequenceMatcher(None, fingerprint.split(), here, autojunk=False)
        for version, fingerprint in known.items()
    }
    nearest = max(matchers, key=lambda version: matchers[version].ratio(), default=None)
    if nearest is None:
        matcher = difflib.SequenceMatcher(None, [], here, autojunk=False)
    else:
        matcher = matchers[nearest]
    lines = [f"--- {nearest or 'nothing known'} (fingerprints only)", f"+++ {source.file}"]
    for kind, known_from, known_to, from_, to in matcher.get_opcodes():
        if kind == "equal":
            continue
        line = source.parts[from_].line if from_ < len(source.parts) else source.parts[-1].line
        lines.append(f"@@ line {line} @@")
        lines += [
            f"-({_part_name(index)} of {nearest}, text not carried here)" for index in range(known_from, known_to)
        ]
        lines += [f"+{text}" for part in source.parts[from_:to] for text in part.lines]
    return "\n".join(lines)


def _part_name(index: int) -> str:
    return f"statement {index}" if index else "signature"


def _parse(text: str) -> tuple[_Definition | None, int]:
    """Parse a definition that may be indented; return its node and by how many lines the node's numbers are too high."""
    for prefix in ("", "if True:\n"):
        try:
            node = ast.parse(prefix + text).body[0]
        except (SyntaxError, IndexError):
            continue
        if prefix and isinstance(node, ast.If):
            node = node.body[0]
        if isinstance(node, _DEFINITIONS):
            return node, 1 if prefix else 0
    return None, 0


def _definitions_in(scope: ast.Module | _Definition) -> Iterator[_Definition]:
    """Yield the functions and classes of a scope in order, also those under an ``if`` or ``try``, but not nested ones."""
    pending = list(scope.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, _DEFINITIONS):
            yield node
        else:
            pending[:0] = ast.iter_child_nodes(node)


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    return body[1:] if is_docstring else body


def _dump(node: object, without: tuple[str, ...] = ()) -> str:
    """Write a syntax tree as text that does not depend on the Python version (``ast.dump`` and ``ast.unparse`` do)."""
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__} {ascii(node.value)}"
    if isinstance(node, ast.JoinedStr):
        # Python 3.12 ends some f-strings with an empty literal.
        return f"JoinedStr({_dump([value for value in node.values if getattr(value, 'value', None) != ''])})"
    if isinstance(node, list):
        return f"[{', '.join(_dump(item) for item in node)}]"
    if not isinstance(node, ast.AST):
        return ascii(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, _DEFINITIONS):
            value = _without_docstring(value)
        # Versions differ in which optional fields exist; an absent one equals an empty one.
        if name not in _IGNORED_FIELDS and name not in without and value is not None and value != []:
            fields.append(f"{name}={_dump(value)}")
    return f"{type(node).__name__}({', '.join(fields)})"


class _Unqualify(ast.NodeTransformer):
    def __init__(self, modules: frozenset[str]) -> None:
        self._modules = modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._modules:
            return ast.Name(node.attr, node.ctx)
        return node


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
