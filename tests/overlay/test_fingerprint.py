"""Fingerprints: what counts and what does not, on text; and those of the table, on the installed colossalai."""

import ast
import importlib

import pytest

from colossalai_fork.overlay import fingerprint
from colossalai_fork.overlay.inspection import ABSENT, find
from colossalai_fork.overlay.table import REPLACEMENTS

FUNCTION = '''
def f(a, b=1):
    """Say something."""
    if a:
        return f"{a!r:>{b}} and " "more"

    def g():
        "Nested."
        return a, b

    return g()
'''


def digest(text, name="f"):
    return fingerprint.find_in_module(text, name).fingerprint


@pytest.mark.parametrize(
    "old, new",
    [
        ('    """Say something."""\n', ""),
        ('        "Nested."\n', ""),
        ("    if a:\n", "    # a comment\n    if (a):  # another\n"),
        ("return a, b", "return (\n            a,\n            b,\n        )"),
        ('"more"', "'''more'''"),
        ('" "more"', 'more"'),
    ],
)
def test_what_does_not_count(old, new):
    assert old in FUNCTION
    assert digest(FUNCTION.replace(old, new)) == digest(FUNCTION)


@pytest.mark.parametrize(
    "old, new, changed",
    [
        ("def f(a, b=1)", "def f(a, b=2)", [0]),
        ("def f(a, b=1)", "def f(a, *, b=1)", [0]),
        ("def f(a", "@staticmethod\ndef f(a", [0]),
        ("def f(a, b=1):", "def f(a, b=1) -> int:", [0]),
        ("if a:", "if not a:", [1]),
        ("!r", "!s", [1]),
        ("more", "less", [1]),
        ("return a, b", "return b, a", [2]),
        ("b=1", "b=True", [0]),
        ("b=1", "b=1.0", [0]),
        ("b=1", "b='1'", [0]),
        ("b=1", "b=b'1'", [0]),
        ("return g()", "return g", [3]),
        ("return g()", "return g()\n    x = 1", [4]),
    ],
)
def test_what_counts_and_where(old, new, changed):
    assert FUNCTION.count(old) == 1
    before, after = digest(FUNCTION).split(), digest(FUNCTION.replace(old, new)).split()
    assert [i for i in range(len(after)) if after[i] != (before[i : i + 1] or [None])[0]] == changed


def test_digests_are_the_same_under_every_python():
    assert digest(FUNCTION) == "8b6ec6e93b0e 598e751e2cd9 03dcae777fbe 5334dff9061e"


def test_empty_literals_in_f_strings_do_not_count():
    # Python 3.12.1 parses f"{a:>{b}}" with an empty literal at the end of the format, others without.
    def format_of(*values):
        return fingerprint._dump(ast.JoinedStr([ast.Constant(">"), *values]))

    name = ast.FormattedValue(ast.Name("b", ast.Load()), -1, None)
    assert format_of(name, ast.Constant("")) == format_of(name) != format_of(name, ast.Constant(" "))


def test_indentation_does_not_count():
    lines = [f"    {line}" if line else line for line in FUNCTION.splitlines()]
    assert digest("\n".join(["class C:", *lines, ""]), "C.f") == digest(FUNCTION)


def test_the_last_definition_counts_and_nested_ones_do_not():
    text = (
        "def g():\n    def f():\n        pass\n\n\nif 1:\n    def f():\n        return 1\n\n\ndef f():\n    return 2\n"
    )
    source = fingerprint.find_in_module(text, "f")
    assert source.text == "def f():\n    return 2\n"
    assert fingerprint.find_in_module(text, "h") is None
    assert fingerprint.find_in_module("def g():\n    def f():\n        pass\n", "f") is None


def test_several_versions_are_told_apart_and_the_nearest_is_compared():
    changed = FUNCTION.replace("if a", "if not a")
    known = {"1": digest(FUNCTION), "2": digest("def f():\n    pass\n")}
    assert fingerprint.known_version(fingerprint.find_in_module(FUNCTION, "f"), known) == "1"
    assert fingerprint.known_version(fingerprint.find_in_module("def f():\n  pass", "f"), known) == "2"
    source = fingerprint.find_in_module(changed, "f", "there.py")
    assert fingerprint.known_version(source, known) is None
    assert fingerprint.difference(source, known).splitlines() == [
        "--- 1 (fingerprints only)",
        "+++ there.py",
        "@@ line 4 @@",
        "-(statement 1 of 1, text not carried here)",
        "+    if not a:",
        '+        return f"{a!r:>{b}} and " "more"',
    ]


def test_same_code_through_another_module():
    def source(text, *modules, wrappers=0):
        return fingerprint.Source(text, modules=frozenset(modules), extra_wrappers=wrappers)

    ours = source("def f(a):\n    return optim.Zero(a.b)\n", "optim")
    assert ours.is_same_code(source("    def f(a):\n        'Doc.'\n        return Zero(a.b)\n"))
    assert ours.is_same_code(source("def f(a):\n    return other.Zero(a.b)\n", "other"))
    assert not ours.is_same_code(source("def f(a):\n    return other.Zero(a.b)\n"))
    assert not ours.is_same_code(source("def f(a):\n    return One(a.b)\n"))
    assert not ours.is_same_code(source("def f(a):\n    return Zero(b)\n"))
    assert not ours.is_same_code(source("def f(a):\n    return Zero(a.b)\n", wrappers=1))
    assert not source("not python").is_same_code(source("not python"))


@pytest.mark.parametrize("row", REPLACEMENTS, ids=lambda row: row.symbol)
def test_the_table_knows_the_installed_colossalai(row):
    owner, attribute = find(importlib.import_module(row.module), row.name)
    installed = vars(owner).get(attribute, ABSENT)
    if row.kind == "add":
        assert installed is ABSENT
    else:
        assert fingerprint.known_version(fingerprint.source_of(installed), row.known) == "0.5.0"


def test_no_symbol_is_listed_twice():
    symbols = [row.symbol for row in REPLACEMENTS]
    assert len(symbols) == len(set(symbols))
    assert {row.kind for row in REPLACEMENTS} <= {"replace", "add", "inherit"}
