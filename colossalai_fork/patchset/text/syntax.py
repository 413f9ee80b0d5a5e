"""Parsing other people's sources, whose odd string escapes are not ours to warn about."""

import ast
import symtable
import warnings
from typing import Any


def parse(source: str, **options: Any) -> ast.Module:
    """Parse a source text as :func:`ast.parse` does, without warnings.

    Args:
        source (str): the text.
        **options: see :func:`ast.parse`.

    Returns:
        ast.Module: the tree; of another class if the options ask for another mode.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, **options)


def symbols(source: str) -> symtable.SymbolTable:
    """Make the symbol table of a source text as :func:`symtable.symtable` does, without warnings.

    Args:
        source (str): the text.

    Returns:
        symtable.SymbolTable: the outermost table.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return symtable.symtable(source, "<source>", "exec")
