"""The fork's code in upstream's words: functions together with what they need, and whole new modules."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
from typing import TYPE_CHECKING, Iterable, Iterator, TypeVar

import libcst as cst

from ..errors import PatchError
from ..text import names, transplant
from ..text.modules import Origins, absolute, as_written_in
from ..text.syntax import parse
from .source import FORK, Source

if TYPE_CHECKING:
    from ...overlay.table import Replacement

_Node = TypeVar("_Node", bound=cst.CSTNode)


@dataclasses.dataclass(frozen=True)
class Carried:
    """A statement of the fork, rewritten for the file that it goes to.

    Args:
        statement (libcst.CSTNode): the rewritten statement.
        imports (list[names.Import]): what it needs from other modules, absolute and in upstream's names.
        siblings (list[str]): private definitions of the same module of the fork that have to come along.
    """

    statement: cst.CSTNode
    imports: list[names.Import]
    siblings: list[str]


def carry(source: Source, module: str, name: str, target: str) -> Carried:
    """Rewrite one function, method or private definition for an upstream file.

    Args:
        source (Source): the fork's code.
        module (str): the fork's module that defines it.
        name (str): its qualified name there.
        target (str): upstream's module that it goes to.

    Returns:
        Carried: the statement and its needs.

    Raises:
        PatchError: if it uses something that cannot go upstream.
    """
    text = source.text(module)
    statement = transplant.find(transplant.parse(text, module), name)
    if statement is None:
        raise PatchError(f"{module} has no {name}")
    _check_own_methods(source, module, name, statement, text)
    bound, defined = names.imports(text), names.definitions(text)
    free = names.free(transplant.text(statement))
    aliases = {
        alias: _imported_module(source, module, bound[alias])
        for alias in free & set(bound)
        if _imported_module(source, module, bound[alias]) is not None
    }
    statement, taken = _rewrite(statement, source, module, target, aliases)
    needed, siblings = list(taken), []
    for free_name in sorted(names.free(transplant.text(statement)) - {item.bound for item in taken}):
        if free_name in defined:
            upstream = source.counterpart(module, free_name)
            if upstream is None:
                siblings.append(free_name)
            elif upstream[1] != free_name:
                raise PatchError(
                    f"{name} of {module} uses {free_name}, which upstream calls {upstream[1]}: name both alike"
                )
            else:
                needed.append(names.Import(free_name, *upstream))
        elif free_name in bound:
            found = bound[free_name]
            upstream = source.upstream_of(absolute(found.module, module), found.name)
            needed.append(names.Import(free_name, *upstream))
        elif not (free_name.startswith("__") and free_name.endswith("__")):
            raise PatchError(f"{name} of {module} uses {free_name}, which that module neither imports nor defines")
    return Carried(statement, needed, siblings)


def check_table(source: Source) -> None:
    """Refuse a table that would put a copy of one private definition into two upstream files.

    Args:
        source (Source): the fork's code.

    Raises:
        PatchError: naming each such definition.
    """
    targets = {}
    for row in source.rows:
        # Where a method makes way for an inherited one, nothing is carried.
        pending, seen = [] if row.kind == "inherit" else [row.our_name], set()
        while pending:
            name = pending.pop()
            for sibling in carry(source, row.our_module, name, row.module).siblings:
                targets.setdefault((row.our_module, sibling), set()).add(row.module)
                if sibling not in seen:
                    seen.add(sibling)
                    pending.append(sibling)
    problems = [
        f"{name} of {module} would be copied into {' and '.join(sorted(files))}: give it a row of its own, kind 'add'"
        for (module, name), files in sorted(targets.items())
        if len(files) > 1
    ]
    if problems:
        raise PatchError("\n".join(problems))


def carry_module(source: Source, module: str) -> str:
    """Rewrite a new module for upstream.

    Args:
        source (Source): the fork's code.
        module (str): the fork's module.

    Returns:
        str: its source under upstream's names; its imports still have to be sorted for the tree it goes to.
    """
    text = source.text(module)
    target, _ = source.upstream_of(module, None)
    tree, taken = _rewrite(transplant.parse(text, module), source, module, target, {})
    assert not taken
    return in_upstream_words(tree.code, source, module)


def in_upstream_words(text: str, source: Source, name: str) -> str:
    """Name upstream's package in comments and docstrings, and refuse what would still name the fork.

    Args:
        text (str): carried source.
        source (Source): the fork's code.
        name (str): what to call the text in messages.

    Returns:
        str: the text.
    """
    text = text.replace(source.package, source.upstream_package)
    for number, line in enumerate(text.splitlines(), 1):
        if FORK in line or FORK.replace("_", "-") in line:
            raise PatchError(f"line {number} of {name} would name the fork upstream: {line.strip()}")
    return text


def carried_texts(source: Source, rows: list[Replacement]) -> list[tuple[str, str]]:
    """Write what rows of the replacement table bring into upstream's files, with the imports that it needs.

    Args:
        source (Source): the fork's code.
        rows (list): the rows.

    Returns:
        list[tuple[str, str]]: upstream's module and a text for it, for each function and private definition.
    """
    texts = []
    for row in rows:
        pending, seen = [] if row.kind == "inherit" else [row.our_name], set()
        while pending:
            name = pending.pop()
            carried = carry(source, row.our_module, name, row.module)
            lines = [f"from {item.module} import {item.name}\n" for item in carried.imports if item.name is not None]
            texts.append((row.module, "".join(lines) + transplant.text(carried.statement)))
            pending += [sibling for sibling in carried.siblings if sibling not in seen]
            seen.update(carried.siblings)
    return texts


def imported_new_modules(source: Source, texts: list[tuple[str, str]]) -> dict[str, str]:
    """Carry the fork's new modules that carried texts import, directly or through each other.

    Args:
        source (Source): the fork's code.
        texts (list[tuple[str, str]]): upstream modules and carried sources for them.

    Returns:
        dict[str, str]: their sources by upstream's file, as :func:`carry_module` gives them.
    """
    origins, found, seen, pending = Origins(source.root), {}, set(), list(texts)
    while pending:
        importer, text = pending.pop()
        for imported in _with_packages(_everything_imported(text, importer), source.upstream_package):
            module = source.package + imported[len(source.upstream_package) :]
            file = origins.file(module)
            if module in seen or file is None or source.is_patchwork(module):
                continue
            seen.add(module)
            carried = carry_module(source, module)
            found[_upstream_file(imported, file)] = carried
            # What a package's own __init__ imports is relative to the package.
            pending.append((f"{imported}.__init__" if file.name == "__init__.py" else imported, carried))
    return found


def _with_packages(modules: Iterable[str], package: str) -> Iterator[str]:
    # Importing a module imports the packages that it lies in.
    for module in modules:
        while module.startswith(f"{package}."):
            yield module
            module = module.rpartition(".")[0]


def _upstream_file(module: str, file: pathlib.Path) -> str:
    path = module.replace(".", "/")
    return f"{path}/__init__.py" if file.name == "__init__.py" else f"{path}.py"


def _everything_imported(text: str, importer: str) -> Iterator[str]:
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.ImportFrom):
            module = absolute("." * node.level + (node.module or ""), importer)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _imported_module(source: Source, module: str, found: names.Import) -> str | None:
    # "from colossalai.booster.plugin import low_level_zero_plugin as upstream" and "import colossalai.x.y as upstream"
    # name a module. Torch and friends stay as they are.
    full = absolute(found.module, module) if found.name is None else f"{absolute(found.module, module)}.{found.name}"
    if found.name is None:
        return full if full.startswith("colossalai.") else None
    return full if full in {row.module for row in source.rows} else None


def _check_own_methods(source: Source, module: str, name: str, statement: cst.CSTNode, text: str) -> None:
    owner = name.rpartition(".")[0]
    if not owner or not any(row.our_module == module and row.our_name == name for row in source.rows):
        return
    carried = {row.our_name for row in source.rows if row.our_module == module}
    fork_class = transplant.find(transplant.parse(text, module), owner)
    own = {method for node in fork_class.body.body for method in transplant.defined_by(node)}
    reached = {
        node.attr
        for node in ast.walk(parse(transplant.text(statement)))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    }
    missing = sorted(attribute for attribute in own & reached if f"{owner}.{attribute}" not in carried)
    if missing:
        raise PatchError(f"{name} of {module} uses {', '.join(missing)} of its class, for which the table has no row")


def _rewrite(
    node: _Node, source: Source, module: str, target: str, aliases: dict[str, str]
) -> tuple[_Node, list[names.Import]]:
    rewriter = _Rewriter(source, module, target, aliases)
    return node.visit(rewriter), sorted(rewriter.taken, key=lambda item: item.bound)


class _Rewriter(cst.CSTTransformer):
    """Import statements in upstream's names; ``upstream.Name`` becomes ``Name``."""

    def __init__(self, source: Source, module: str, target: str, aliases: dict[str, str]) -> None:
        super().__init__()
        self._source, self._module, self._target, self._aliases = source, module, target, aliases
        self.taken = set()

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        value = original_node.value
        if isinstance(value, cst.Name) and value.value in self._aliases:
            name = updated_node.attr.value
            self.taken.add(names.Import(name, self._aliases[value.value], name))
            return cst.Name(name, lpar=updated_node.lpar, rpar=updated_node.rpar)
        return updated_node

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        for alias in updated_node.names:
            written = cst.helpers.get_full_name_for_node(alias.name)
            if written.split(".")[0] == FORK:
                raise PatchError(f'{self._module} says "import {written}": carried code needs the "from" form')
        return updated_node

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        written = "." * len(updated_node.relative)
        if updated_node.module is not None:
            written += cst.helpers.get_full_name_for_node(updated_node.module)
        module = absolute(written, self._module)
        if not module.split(".")[0].startswith("colossalai") or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        targets = {self._source.upstream_of(module, alias.evaluated_name) for alias in updated_node.names}
        modules = {upstream_module for upstream_module, _ in targets}
        if len(modules) != 1 or {n for _, n in targets} != {alias.evaluated_name for alias in updated_node.names}:
            raise PatchError(f"{self._module} imports names from {module} that lie in different places upstream")
        return _with_module(updated_node, as_written_in(modules.pop(), self._target))


def _with_module(statement: cst.ImportFrom, written: str) -> cst.ImportFrom:
    bare = written.lstrip(".")
    parsed = cst.parse_statement(f"from {written} import _\n").body[0] if bare else None
    return statement.with_changes(
        module=parsed.module if parsed else None, relative=[cst.Dot()] * (len(written) - len(bare))
    )
