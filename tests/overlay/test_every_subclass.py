"""Every checkpoint IO class of ColossalAI has corrected loaders and a contract, or is listed with a reason.

ColossalAI is searched twice: by importing all that imports, and by reading the source of the rest, since some modules need
hardware or packages that are not here.
"""

import ast
import importlib
import json
import os
import pkgutil
import subprocess
import sys

import pytest
from unmodified import ROOT, needs_unmodified_colossalai

import colossalai_fork.gate.suite

pytestmark = needs_unmodified_colossalai

#: Classes without a contract of their own, and why.
WITHOUT_CONTRACT = {
    "CheckpointIO": "abstract; the loaders of the others start from its load_optimizer",
    "InferCheckpoint_io": "loads models for inference, which has no optimizer; its loaders are GeneralCheckpointIO's",
}
METHODS = ("load_optimizer", "load_sharded_optimizer", "load_unsharded_optimizer")

SEARCH = """
import importlib, json, logging, pkgutil, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.INFO)
import colossalai
from colossalai.checkpoint_io import CheckpointIO
for module in pkgutil.walk_packages(colossalai.__path__, "colossalai.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
    except BaseException:
        pass  # what it needs is not here
if "apply" in sys.argv:
    import colossalai_fork
    colossalai_fork.apply()
found, pending = {}, [CheckpointIO]
while pending:
    cls = pending.pop()
    pending += cls.__subclasses__()
    if cls.__module__.startswith("colossalai."):
        origins = {name: getattr(cls, name).__module__ for name in %r}
        found[cls.__name__] = {"origins": origins, "own": sorted(set(origins) & set(vars(cls)))}
sys.stderr.write("found:" + json.dumps(found))
""" % (
    METHODS,
)


def search(*arguments):
    """Find the subclasses in a process of its own, and which module each of their loaders is from."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-c", SEARCH, *arguments]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stderr.rpartition("found:")[2])


def classes_in_source():
    """Find what looks like a subclass in the source, by the names of its bases."""
    bases = {}
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "heckpoint" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    names = {
                        base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases
                    }
                    bases.setdefault(node.name, set()).update(names)
    found, before = {"CheckpointIO"}, set()
    while found != before:
        before = set(found)
        found |= {name for name, parents in bases.items() if parents & found}
    return found


def classes_with_a_contract():
    """Collect what the gate's test modules test."""
    names = set()
    for module in pkgutil.iter_modules(colossalai_fork.gate.suite.__path__):
        if module.name.startswith("test_"):
            loaded = importlib.import_module(f"colossalai_fork.gate.suite.{module.name}")
            tests = [value for name, value in vars(loaded).items() if name.startswith("Test")]
            names |= {test.class_under_test for test in tests if hasattr(test, "class_under_test")}
    return names


def not_covered(found):
    """List the loaders that are not ours."""
    return [
        f"{name}.{method} is from {origin}"
        for name, each in sorted(found.items())
        for method, origin in each["origins"].items()
        if not origin.startswith("colossalai_fork.")
        # An abstract class leaves them to others.
        and (name != "CheckpointIO" or method == "load_optimizer")
    ]


@pytest.fixture(scope="module")
def found():
    """The subclasses with the overlay in."""
    return search("apply")


def test_every_class_has_our_loaders(found):
    assert not_covered(found) == []


def test_every_class_has_a_contract_or_a_reason(found):
    named = set(found) | classes_in_source()
    assert named - classes_with_a_contract() == set(WITHOUT_CONTRACT)


def test_a_class_without_a_contract_has_no_loader_of_its_own(found):
    own = {name: found[name]["own"] for name in WITHOUT_CONTRACT if name in found and name != "CheckpointIO"}
    assert not any(own.values()), own


def test_the_source_names_all_that_imports_find(found):
    assert set(found) <= classes_in_source()


def test_unmodified_colossalai_covers_none():
    found = search()
    assert len(not_covered(found)) == 3 * (len(found) - 1) + 1


def test_a_class_that_nobody_has_listed_is_found():
    stranger = {"origins": {method: "colossalai.booster.plugin.new" for method in METHODS}, "own": []}
    assert len(not_covered({"StrangerCheckpointIO": stranger})) == 3
