import pytest

pytest.importorskip("libcst", reason="the patch extra is not installed")

from patchset_trees import make_upstream

from colossalai_fork.patchset.errors import PatchError
from colossalai_fork.patchset.text import imports, names
from colossalai_fork.patchset.text.modules import Origins, absolute, as_written_in, imported_from, module_of


def test_names_that_a_function_takes_from_its_module():
    source = (
        "@register(kind=KIND)\n"
        "def load(optimizer: Optimizer, path: 'Optional[Path]' = DEFAULT, *rest: Rest) -> 'Dict[str, int]':\n"
        "    from .errors import Missing\n"
        "    size = max(len(group) for group in optimizer.param_groups)\n"
        "    def inner(value):\n"
        "        return LIMIT + value + size\n"
        "    try:\n"
        "        return [dist.get_rank() for rank in range(size)]\n"
        "    except Missing as error:\n"
        "        raise Failed(inner(1)) from error\n"
    )
    expected = "register KIND Optimizer Optional Path DEFAULT Rest Dict LIMIT dist Failed"
    assert names.free(source) == set(expected.split())


def test_names_that_a_class_takes_from_its_module():
    source = (
        "class Shard(Base, metaclass=Meta):\n    size: int = LIMIT\n    def read(self):\n        return Shard, size\n"
    )
    assert names.free(source) == {"Base", "Meta", "LIMIT", "size"}


def test_shadowed_names_are_not_used():
    assert "os" not in names.used("import os\ndef f(os):\n    return os\n")
    assert "os" not in names.used("import os\ndef f():\n    os = 1\n    return [os for os in range(os)]\n")
    assert "os" in names.used("import os\ndef f():\n    return lambda: os\n")


def test_exported_and_annotated_names_are_used():
    source = "from a import b, c, d, e\n__all__ = ['b']\n__all__ += ['e']\nx: 'c' = 1\ndef f(y: 'List[d]'): ...\n"
    assert imports.unused(source) == set()


def test_unused_imports():
    source = "from __future__ import annotations\nimport a.b\nimport c as d\nfrom e import f, g as h\nprint(a, h)\n"
    assert imports.unused(source) == {"d", "f"}


def test_imports_of_a_module():
    source = "import a.b\nimport c.d as e\nfrom ..f import g as h\nif X:\n    from . import i\ndef f():\n    import j\n"
    assert names.imports(source) == {
        "a": names.Import("a", "a", None),
        "e": names.Import("e", "c.d", None),
        "h": names.Import("h", "..f", "g"),
        "i": names.Import("i", ".", "i"),
    }


def test_definitions_of_a_module():
    found = names.definitions("'doc'\na, b = 1, 2\nc: int = 3\ndef d(): e = 1\nclass f: g = 1\n")
    assert found == {"a": 1, "b": 1, "c": 2, "d": 3, "f": 4}


def test_absolute_names():
    assert absolute(".utils", "colossalai.checkpoint_io.general") == "colossalai.checkpoint_io.utils"
    assert absolute(".", "colossalai.checkpoint_io.general") == "colossalai.checkpoint_io"
    assert absolute("..nn.layer", "colossalai.checkpoint_io.general") == "colossalai.nn.layer"
    assert absolute(".utils", "colossalai.checkpoint_io", importer_is_package=True) == "colossalai.checkpoint_io.utils"
    assert absolute("torch.optim", "colossalai.checkpoint_io.general") == "torch.optim"
    with pytest.raises(PatchError, match="outside its package"):
        absolute("....x", "colossalai.checkpoint_io.general")


def test_names_as_upstream_writes_them():
    assert as_written_in("colossalai.checkpoint_io.utils", "colossalai.checkpoint_io.general") == ".utils"
    assert (
        as_written_in("colossalai.checkpoint_io.utils", "colossalai.booster.plugin") == "colossalai.checkpoint_io.utils"
    )
    assert as_written_in("torch", "colossalai.booster.plugin") == "torch"
    assert as_written_in("errno", "conftest") == "errno"


def test_modules_of_files():
    assert module_of("colossalai/checkpoint_io/utils.py") == "colossalai.checkpoint_io.utils"
    assert module_of("colossalai/checkpoint_io/__init__.py") == "colossalai.checkpoint_io"


def test_origins_follow_re_exports(tmp_path):
    origins = Origins(make_upstream(tmp_path))
    assert origins.of("colossalai.checkpoint_io", "IndexFile") == ("colossalai.checkpoint_io.index", "IndexFile")
    assert origins.of("colossalai.checkpoint_io", "index") == ("colossalai.checkpoint_io.index", None)
    assert origins.of("colossalai.checkpoint_io.general", "reduce") == ("functools", "reduce")
    assert origins.of("torch.optim", "Optimizer") == ("torch.optim", "Optimizer")


def test_names_that_other_files_take(tmp_path):
    root = make_upstream(tmp_path)
    assert imported_from(root, "colossalai.checkpoint_io.utils") == set(
        "load_groups load_shards load_states save_states finish_loading".split()
    )


def test_taking_out_imports_leaves_the_others_as_they_are():
    source = "# header\nimport a\nimport b, c\nfrom d import (\n    e,\n    f,\n    g,\n)\nfrom h import i\n\nx = 1\n"
    changed = imports.remove(source, {"a", "c", "g", "i"})
    assert changed == "# header\nimport b\nfrom d import (\n    e,\n    f,\n)\n\nx = 1\n"


def test_comments_above_an_import_that_goes_stay():
    source = "import a\n# about the rest\nfrom b import c\nfrom d import e\n"
    assert imports.remove(source, {"c"}) == "import a\n# about the rest\nfrom d import e\n"


def test_added_imports_are_sorted_into_upstreams_blocks(tmp_path):
    make_upstream(tmp_path)
    source = '"""Doc."""\nimport os\n\nimport torch\n\nfrom .index import A\n\nx = 1\n'
    wanted = [names.Import("B", ".index", "B"), names.Import("List", "typing", "List"), names.Import("t", "torch", "t")]
    wanted.append(names.Import("C", "colossalai.interface", "C"))
    changed = imports.sort(imports.add(source, wanted), tmp_path)
    assert changed == (
        '"""Doc."""\nimport os\nfrom typing import List\n\nimport torch\nfrom torch import t\n\n'
        "from colossalai.interface import C\n\nfrom .index import A, B\n\nx = 1\n"
    )


def test_an_import_goes_to_the_others_of_its_package(tmp_path):
    make_upstream(tmp_path)
    source = "import os\n\nif os.name:\n    import torch\n\nfrom colossalai.interface import B\n\nx = 1\n"
    wanted = [names.Import("A", "colossalai.checkpoint_io", "A"), names.Import("re", "re", None)]
    assert imports.sort(imports.add(source, wanted), tmp_path) == (
        "import os\nimport re\n\nif os.name:\n    import torch\n\n"
        "from colossalai.checkpoint_io import A\nfrom colossalai.interface import B\n\nx = 1\n"
    )
