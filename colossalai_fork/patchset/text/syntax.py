"""Parsing other people's sources, whose odd string escapes are not ours to warn about."""

import ast
import symtable
import warnings


def parse(source, **options):
    """Parse a source text as :func:`ast.parse` does, without warnings.

    Args:
        source (str): the text.
        **options: see :func:`ast.parse`.

    Returns:
        ast.AST: the tree.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, **options)


def symbols(source):
    """Make the symbol table of a source text as :func:`symtable.symtable` does, without warnings.

    Args:
        source (str): the text.

    Returns:
        symtable.SymbolTable: the outermost table.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return symtable.symtable(source, "<source>", "exec")
