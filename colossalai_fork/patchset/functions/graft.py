"""Puts the fork's functions into one upstream file, with the private definitions and the imports that they need."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from ..errors import PatchError
from ..text import imports, names, transplant
from ..text.modules import Origins, absolute, as_written_in, module_of
from .carry import carry, in_upstream_words

if TYPE_CHECKING:
    import libcst as cst

    from ...overlay.table import Replacement
    from .source import Source


def graft(source: Source, root: pathlib.Path, file: str, rows: list[Replacement]) -> str:
    """Rewrite one upstream file.

    Args:
        source (source.Source): the fork's code.
        root (pathlib.Path): the upstream tree.
        file (str): the file, relative to the root.
        rows (list): the rows of the replacement table that name this file, in the order in which they are to be done.

    Returns:
        str: the file's new text. What the rows do not name, and no import has to change for, is as before, byte for
            byte.

    Raises:
        PatchError: if the functions do not fit this file.
    """
    before = root.joinpath(file).read_text(encoding="utf-8")
    target = module_of(file)
    module = transplant.parse(before, file)
    wanted, siblings = set(), []
    for row in rows:
        if row.kind == "inherit":
            module = transplant.remove(module, row.name)
            continue
        carried = carry(source, row.our_module, row.our_name, target)
        module = _place(module, source, row, carried.statement)
        wanted.update(carried.imports)
        siblings.extend((row.our_module, name) for name in carried.siblings)
    placed = set()
    while siblings:
        sibling = siblings.pop(0)
        if sibling in placed:
            continue
        placed.add(sibling)
        carried = carry(source, *sibling, target)
        module = _place_sibling(module, sibling[1], carried.statement, file)
        wanted.update(carried.imports)
        siblings.extend((sibling[0], name) for name in carried.siblings)
    after = _add_imports(module.code, wanted, target, Origins(root))
    return finish(source, root, file, before, after)


def finish(source: Source, root: pathlib.Path, file: str, before: str, after: str) -> str:
    """Bring a changed file's imports in order.

    Args:
        source (source.Source): the fork's code.
        root (pathlib.Path): the upstream tree, with the file as it was before.
        file (str): the file, relative to the root.
        before (str): its text before the change.
        after (str): its text after the change.

    Returns:
        str: the text without imports that the change left unused, sorted if it was sorted before.
    """
    after = imports.settle(root, file, before, after)
    return in_upstream_words(after, source, file)


def _place(module: cst.Module, source: Source, row: Replacement, statement: cst.CSTNode) -> cst.Module:
    owner, _, name = row.name.rpartition(".")
    if row.kind == "replace":
        return transplant.replace(module, row.name, statement)
    if row.kind != "add":
        raise PatchError(f"{row.name}: the table says {row.kind!r}, which is none of 'replace', 'add' and 'inherit'")
    if transplant.find(module, row.name) is not None:
        raise PatchError(f"{row.file} has a {row.name} already, which the series wants to add")
    statement = transplant.renamed(statement, name)
    if not owner:
        return _place_sibling(module, name, statement, row.file)
    return transplant.add_method(module, owner, statement, *_neighbours(source, row))


def _neighbours(source: Source, row: Replacement) -> tuple[list[str], list[str]]:
    # A method that is added stands where the fork has it: between the nearest methods that upstream has, too.
    owner, _, name = row.our_name.rpartition(".")
    fork_class = transplant.find(transplant.parse(source.text(row.our_module), row.our_module), owner)
    methods = [method for node in fork_class.body.body for method in sorted(transplant.defined_by(node))]
    position = methods.index(name)
    return methods[:position][::-1], methods[position + 1 :]


def _place_sibling(module: cst.Module, name: str, statement: cst.CSTNode, file: str) -> cst.Module:
    present = transplant.find(module, name)
    if present is not None:
        if transplant.text(present) == transplant.text(statement):
            return module
        raise PatchError(f"{file} has another {name} already, which carried code needs")
    for position, node in enumerate(module.body):
        if name in names.free(transplant.text(node)):
            return transplant.add_before(module, statement, position)
    return transplant.add_before(module, statement, len(module.body))


def _add_imports(text: str, wanted: set[names.Import], target: str, origins: Origins) -> str:
    present, defined = names.imports(text), names.definitions(text)
    missing = []
    for item in sorted(wanted, key=lambda item: (item.bound, item.module)):
        if item.module == target and item.name is not None:
            if item.bound not in defined and item.bound not in present:
                raise PatchError(f"{target} has no {item.bound}, which carried code needs from it")
        elif item.bound in defined:
            raise PatchError(f"{target} defines a {item.bound} of its own; carried code needs the one of {item.module}")
        elif item.bound not in present:
            missing.append(_as_written(item, target, origins))
        elif not _same(_origin(present[item.bound], target, origins), _origin(item, target, origins), origins):
            theirs = present[item.bound].module
            raise PatchError(f"{target} takes {item.bound} from {theirs}; carried code needs the one of {item.module}")
    return imports.add(text, missing)


def _origin(item: names.Import, importer: str, origins: Origins) -> tuple[str, str | None]:
    module = absolute(item.module, importer)
    return (module, None) if item.name is None else origins.of(module, item.name)


def _same(one: tuple[str, str | None], other: tuple[str, str | None], origins: Origins) -> bool:
    if one == other:
        return True
    # Outside the tree nothing can be followed, but a package hands on what its modules define under the same name.
    shorter, longer = sorted((one[0], other[0]), key=len)
    outside = origins.file(shorter.split(".")[0]) is None
    return outside and one[1] is not None and one[1] == other[1] and longer.startswith(shorter + ".")


def _as_written(item: names.Import, target: str, origins: Origins) -> names.Import:
    if item.name is None:
        return item
    module, name = item.module, item.name
    if module == target.rpartition(".")[0]:
        # A package's own module cannot import through the package that is still importing it.
        module, name = origins.of(module, name)
        if name is None:
            return names.Import(item.bound, ".", item.name)
    return names.Import(item.bound, as_written_in(module, target), name)
