"""Compares code apart from how it is worded: comments, docstrings and the texts of messages, which reviews change."""

import ast
import difflib
import textwrap

from .syntax import parse

_Owner = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code(text: str | ast.AST, worded: bool = True) -> str:
    """Write source in one form, however it is laid out.

    Args:
        text (str | ast.AST): source, or a part of a tree.
        worded (bool): whether messages count. Docstrings and comments never do.

    Returns:
        str: the form; two sources with equal ones do the same.
    """
    # A copy: the transformers change what they visit.
    tree = parse(ast.unparse(parse(textwrap.dedent(text)) if isinstance(text, str) else text))
    tree = _WithoutDocstrings().visit(tree)
    return ast.dump(tree if worded else _WithoutMessages().visit(tree))


def differences(ours: str, theirs: str, name: str) -> str:
    """Show how two sources differ.

    Args:
        ours (str): one source.
        theirs (str): the other.
        name (str): what they are.

    Returns:
        str: a unified diff.
    """
    lines = [textwrap.dedent(text).splitlines() for text in (ours, theirs)]
    return "\n".join(difflib.unified_diff(*lines, f"{name} (this series)", f"{name} (here)", lineterm="", n=1))


class _WithoutDocstrings(ast.NodeTransformer):
    def _visit_owner(self, node: _Owner) -> _Owner:
        self.generic_visit(node)
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    visit_Module = visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _visit_owner


class _WithoutMessages(ast.NodeTransformer):
    # Text with blanks in it is for people to read; keys and names have none.
    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) and " " in node.value.strip() else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")
