"""The overlay on the installed colossalai."""

import importlib
import pkgutil
import subprocess
import sys
import types

import pytest

import colossalai_fork
from colossalai_fork import checkpoint_io
from colossalai_fork.overlay.inspection import State, find
from colossalai_fork.overlay.table import REPLACEMENTS


def installed():
    """What upstream's classes and modules hold under each name of the table."""
    places = [find(importlib.import_module(row.module), row.name) for row in REPLACEMENTS]
    return [vars(owner).get(attribute) for owner, attribute in places]


def find_ours(row):
    owner, attribute = find(importlib.import_module(row.our_module), row.our_name)
    return vars(owner)[attribute]


def test_apply_and_revert():
    before = installed()
    assert {row.state for row in colossalai_fork.status()} == {State.ORIGINAL}
    with colossalai_fork.apply():
        assert {row.state for row in colossalai_fork.status()} == {State.REPLACED}
        assert all(now is not then for now, then in zip(installed(), before))
    assert all(now is then for now, then in zip(installed(), before))
    assert {row.state for row in colossalai_fork.status()} == {State.ORIGINAL}


def test_every_method_and_function_of_ours_is_in_the_table():
    methods = (types.FunctionType, staticmethod, classmethod, property)
    expected = set()
    for _, our_module, _ in pkgutil.iter_modules(checkpoint_io.__path__, checkpoint_io.__name__ + "."):
        module = importlib.import_module(our_module)
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != our_module or not isinstance(value, type):
                continue
            # Of upstream's classes, ours of the same name put right those that they inherit from.
            for base in value.__mro__[1:]:
                if base.__name__ == name and base.__module__.startswith("colossalai."):
                    own = [attribute for attribute, held in vars(value).items() if isinstance(held, methods)]
                    expected |= {f"{base.__module__}:{name}.{attribute}" for attribute in own}
    functions = {f"colossalai.checkpoint_io.utils:{name}" for name in checkpoint_io.utils.__all__}
    # Whole classes are in the table where the patch series needs them in one of upstream's modules.
    classes = {row.symbol for row in REPLACEMENTS if isinstance(find_ours(row), type)}
    assert {row.symbol for row in REPLACEMENTS} - classes == expected | functions


def test_no_module_of_colossalai_keeps_an_original_function():
    functions = [row for row in REPLACEMENTS if "." not in row.name and row.kind == "replace"]
    originals = {id(getattr(importlib.import_module(row.module), row.name)): row.symbol for row in functions}
    assert originals
    with colossalai_fork.apply():
        held = [
            f"{name}.{attribute} is {originals[id(value)]}"
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] == "colossalai"
            for attribute, value in list(vars(module).items())
            if id(value) in originals
        ]
    assert held == []


@pytest.mark.parametrize("first", ["colossalai_fork.apply()", "import colossalai.booster"])
def test_the_order_of_imports_does_not_matter(first):
    script = f"""
import colossalai_fork
{first}
colossalai_fork.apply()
import colossalai.checkpoint_io.general_checkpoint_io as general
assert general.load_states_into_optimizer.__module__ == "colossalai_fork.checkpoint_io.utils"
from colossalai.checkpoint_io import GeneralCheckpointIO
assert GeneralCheckpointIO.load_sharded_optimizer.__module__.startswith("colossalai_fork.")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)
