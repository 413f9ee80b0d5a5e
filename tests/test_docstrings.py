"""Docstrings of public functions and classes begin with a line that says what it is."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FILES = sorted(path for path in (ROOT / "colossalai_fork").rglob("*.py"))
SECTIONS = ("Args:", "Returns:", "Yields:", "Raises:", "Attributes:")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_summary_comes_first(path):
    nodes = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module))
    ]
    found = {
        f"{getattr(node, 'name', 'the module')}, line {node.body[0].lineno}": ast.get_docstring(node)
        for node in nodes
        if node.body
    }
    assert [place for place, text in found.items() if text and text.strip().splitlines()[0] in SECTIONS] == []
