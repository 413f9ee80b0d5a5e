import random

import pytest

libcst = pytest.importorskip("libcst", reason="the patch extra is not installed")

from colossalai_fork.patchset.errors import PatchError
from colossalai_fork.patchset.text import transplant

UPSTREAM = '''\
# -*- coding: utf-8 -*-
import os


# =======
# Section
# =======

# About first.
@register( "x" )
def first( a,b ):
    """Doc."""
    return   a # trailing
    # footer of first


class IO( Base ):

    limit=3

    def one(self): return 1
    # between

    # About two.
    async def two(
        self,
    ):
        """
          odd   indentation
        """
        x = {1:2}
        return x

    @property
    def three(self):
        return 3

    # end of class


x = 1
'''


def statement(source):
    # Comments above the first statement of a file belong to the file.
    return libcst.parse_module("pass\n\n" + source).body[1]


@pytest.mark.parametrize("name", ["first", "IO.one", "IO.two", "IO.three", "IO.limit", "x", "IO"])
def test_replacing_something_by_itself_changes_nothing(name):
    module = transplant.parse(UPSTREAM, "upstream")
    assert transplant.replace(module, name, transplant.find(module, name)).code == UPSTREAM


@pytest.mark.parametrize(
    "name, begin, end",
    [
        ("first", "# About first", "\n\nclass IO"),
        ("IO.two", "    # About two", "\n    @property"),
        ("IO.three", "    @property", "\n    # end of class"),
    ],
)
def test_only_the_named_function_changes(name, begin, end):
    ours = statement("# Ours.\ndef other(a):\n    return [\n        a,\n    ]\n")
    changed = transplant.replace(transplant.parse(UPSTREAM, "upstream"), name, ours).code
    indent = "    " if "." in name else ""
    lines = ["# Ours.", f"def {name.rpartition('.')[2]}(a):", "    return [", "        a,", "    ]"]
    expected = "".join(f"{indent}{line}\n" for line in lines)
    assert changed == UPSTREAM[: UPSTREAM.index(begin)] + expected + UPSTREAM[UPSTREAM.index(end) :]


def test_a_method_is_added_behind_its_predecessor():
    module = transplant.parse(UPSTREAM, "upstream")
    added = transplant.add_method(
        module, "IO", statement("def new(self):\n    pass\n"), after=["absent", "two", "one"]
    ).code
    assert "        return x\n\n    def new(self):\n        pass\n\n    @property\n" in added
    assert added.replace("\n    def new(self):\n        pass\n", "", 1) == UPSTREAM


def test_a_method_that_comes_first_stands_before_its_successor():
    module = transplant.parse(UPSTREAM, "upstream")
    added = transplant.add_method(module, "IO", statement("# New.\ndef new(self):\n    pass\n"), ["no"], ["two"]).code
    new = "\n    # New.\n    def new(self):\n        pass\n"
    assert added == UPSTREAM.replace("    # between\n", "    # between\n" + new, 1)
    source = "class A:\n    def f(self):\n        pass\n"
    first = transplant.add_method(transplant.parse(source, "a"), "A", statement("def g(self):\n    pass\n"), (), ["f"])
    assert first.code == "class A:\n    def g(self):\n        pass\n\n    def f(self):\n        pass\n"


def test_a_method_without_neighbours_goes_to_the_end_of_the_class():
    source = "class A:\n    def f(self):\n        pass\n\n\nx = 1\n"
    added = transplant.add_method(transplant.parse(source, "a"), "A", statement("def g(self):\n    pass\n")).code
    assert added == "class A:\n    def f(self):\n        pass\n\n    def g(self):\n        pass\n\n\nx = 1\n"


@pytest.mark.parametrize(
    "position, expected",
    [
        (1, "import a\n\n\ndef g():\n    pass\n\n\nX = 1\n\n\ndef f():\n    pass\n"),
        (2, "import a\n\nX = 1\n\n\ndef g():\n    pass\n\n\ndef f():\n    pass\n"),
        (3, "import a\n\nX = 1\n\n\ndef f():\n    pass\n\n\ndef g():\n    pass\n"),
    ],
)
def test_a_function_is_added_with_two_blank_lines(position, expected):
    module = transplant.parse("import a\n\nX = 1\n\n\ndef f():\n    pass\n", "a")
    added = transplant.add_before(module, statement("def g():\n    pass\n"), position).code
    assert added == expected


def test_taking_out_keeps_the_sections_banner():
    module = transplant.remove(transplant.parse(UPSTREAM, "upstream"), "first")
    assert module.code == UPSTREAM[: UPSTREAM.index("# About first")] + UPSTREAM[UPSTREAM.index("\n\nclass IO") :]


def test_taking_out_all_of_a_class_leaves_a_class():
    module = transplant.remove(transplant.parse("class A:\n    def f(self):\n        return 1\n", "a"), "A.f")
    assert module.code == "class A:\n    pass\n"


def test_what_is_absent_or_ambiguous_is_refused():
    module = transplant.parse("def f(): pass\nclass A:\n    def g(self): pass\n    def g(self): pass\n", "a")
    for action in (transplant.remove, lambda m, n: transplant.replace(m, n, m.body[0])):
        with pytest.raises(PatchError, match="there is no A.h"):
            action(module, "A.h")
        with pytest.raises(PatchError, match="defined 2 times"):
            action(module, "A.g")
    with pytest.raises(PatchError, match="no class B"):
        transplant.add_method(module, "B", module.body[0])
    with pytest.raises(PatchError, match="broken cannot be parsed"):
        transplant.parse("def (", "broken")


def test_every_function_of_the_installed_checkpoint_code_survives():
    import importlib.util
    import pathlib

    package = pathlib.Path(importlib.util.find_spec("colossalai").submodule_search_locations[0])
    files = sorted(package.glob("checkpoint_io/*.py"))
    assert len(files) > 5
    for file in files:
        source = file.read_text(encoding="utf-8")
        module = transplant.parse(source, file.name)
        functions = [
            f"{owner.name.value}.{node.name.value}" if owner is not node else node.name.value
            for owner in module.body
            if isinstance(owner, (libcst.ClassDef, libcst.FunctionDef))
            for node in ([owner] if isinstance(owner, libcst.FunctionDef) else owner.body.body)
            if isinstance(node, libcst.FunctionDef)
        ]
        for name in functions:
            assert transplant.replace(module, name, transplant.find(module, name)).code == source
        # Taking some out and looking at the lines that are left: nothing but theirs is gone.
        for name in random.Random(0).sample(functions, min(3, len(functions))):
            left = transplant.remove(module, name).code
            gone = transplant.text(transplant.find(module, name))
            assert len(source.splitlines()) - len(left.splitlines()) >= len(gone.splitlines())
            compile(left, file.name, "exec")
