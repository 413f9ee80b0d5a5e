"""Every function says which types it takes and which it returns."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FILES = [path for folder in ("colossalai_fork", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]


def unhinted(text):
    """Collect what has no type hint. Lambdas cannot have any, and ``self`` and ``cls`` need none.

    Args:
        text (str): Python source.

    Returns:
        list: a text for each parameter, and for each function that does not say what it returns.
    """
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        every = node.args
        parameters = [*every.posonlyargs, *every.args, every.vararg, *every.kwonlyargs, every.kwarg]
        lacking = [
            parameter.arg
            for parameter in parameters
            if parameter is not None and parameter.annotation is None and parameter.arg not in ("self", "cls")
        ]
        lacking += ["return"] * (node.returns is None)
        found += [f"line {node.lineno}: {node.name}: {name}" for name in lacking]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_function_has_hints(path):
    assert unhinted(path.read_text(encoding="utf-8")) == []


def test_what_lacks_a_hint_is_found():
    text = """
class Some:
    def method(self, one, *two, three=3, **four):
        def nested(five: int, *six: int, seven: int = 7, **eight: int): ...
        return lambda nine: nine

    @classmethod
    async def other(cls, one: int) -> int: ...
"""
    assert unhinted(text) == [
        *(f"line 3: method: {name}" for name in ("one", "two", "three", "four", "return")),
        "line 4: nested: return",
    ]
