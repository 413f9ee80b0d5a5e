import textwrap

import pytest

pytest.importorskip("libcst", reason="the patch extra is not installed")

from patchset_trees import UPSTREAM, make_maker, make_series, make_source, make_upstream, write_tree

from colossalai_fork.overlay.table import Replacement
from colossalai_fork.patchset.errors import DriftError, PatchError
from colossalai_fork.patchset.finding import CHANGED, OURS, READY
from colossalai_fork.patchset.functions.carry import carry, carry_module, check_table, imported_new_modules
from colossalai_fork.patchset.functions.graft import graft
from colossalai_fork.patchset.functions.known import survey
from colossalai_fork.patchset.tree import Tree


@pytest.fixture
def root(tmp_path):
    return make_upstream(tmp_path / "upstream")


@pytest.fixture
def source(tmp_path):
    return make_source(tmp_path / "fork")


@pytest.fixture
def series(tmp_path):
    return make_series(tmp_path / "series")


def grafted(source, root, file):
    return graft(source, root, file, [row for row in source.rows if row.file == file])


def change_fork(source, file, old, new):
    path = source.root / "colossalai_fork/checkpoint_io" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_methods_with_their_private_definitions_and_imports(source, root):
    assert grafted(source, root, "colossalai/checkpoint_io/general.py") == textwrap.dedent(
        '''\
        import logging
        import os
        from functools import reduce
        from pathlib import Path
        from typing import Optional

        from .errors import DoesNotFit
        from .index import IndexFile
        from .restore import restore
        from .utils import save_states

        __all__ = ["GeneralIO"]

        _LIMIT = 3


        def _checked(path: "Optional[str]"):
            """Refuse a long path."""
            if len(path) > _LIMIT:
                raise DoesNotFit(path)
            return path


        class GeneralIO:
            """Loads   and saves."""

            def save(self, optimizer, path):
                # one line
                path = Path( path )
                save_states(optimizer, path)

            def load(self, optimizer, index_path):
                """Replace the state.

                Args:
                    optimizer (Optimizer): whose state.
                """
                assert issubclass(GeneralIO, object)
                restore(optimizer, IndexFile(_checked(index_path)))

            def confirm(self, optimizer):
                """Tell whether the state is new."""
                from .errors import DoesNotFit

                if not optimizer.state:
                    raise DoesNotFit(optimizer)

            def size(self, paths):
                logging.info("size")
                return reduce(lambda a, b: a + b, map(os.path.getsize, paths), 0)
        '''
    )


def test_another_package_imports_absolutely_and_the_base_class_is_upstreams(source, root):
    text = grafted(source, root, "colossalai/booster/plugin.py")
    assert text.startswith(
        "from colossalai.checkpoint_io import GeneralIO\nfrom colossalai.checkpoint_io.restore import restore\n\n\n"
    )
    assert "GeneralIO.load(self, optimizer, index_path)\n" in text
    assert "finish_loading" not in text


def test_an_unsorted_file_is_not_sorted(source, root):
    file = root / "colossalai/checkpoint_io/general.py"
    text = file.read_text().replace("import logging\nimport os\n", "import os\nimport logging\n")
    one_line = "from .utils import load_groups, load_shards, load_states, save_states\n"
    broken = "from .utils import (\n    load_groups,\n    save_states,\n    load_shards,\n    load_states,\n)\n"
    assert one_line in text
    file.write_text(text.replace(one_line, broken))
    text = grafted(source, root, "colossalai/checkpoint_io/general.py")
    assert text.startswith(
        "import os\nimport logging\nfrom functools import reduce\nfrom pathlib import Path\n\nfrom .index"
    )
    assert "from .utils import (\n    save_states,\n)\n" in text
    assert "from .restore import restore\n" in text


def test_an_import_that_others_take_from_the_file_stays(source, root):
    (root / "colossalai/other.py").write_text("from .checkpoint_io.general import load_groups\n")
    assert "from .utils import load_groups, save_states\n" in grafted(
        source, root, "colossalai/checkpoint_io/general.py"
    )


def test_an_import_that_was_unused_before_stays(source, root):
    file = root / "colossalai/checkpoint_io/general.py"
    file.write_text(file.read_text().replace("import os\n", "import os\nimport sys\n"))
    assert "import os\nimport sys\n" in grafted(source, root, "colossalai/checkpoint_io/general.py")


def test_new_modules_speak_of_upstream(source):
    assert carry_module(source, "colossalai_fork.checkpoint_io.restore").startswith(
        '"""Restores."""\n\nfrom .index import IndexFile\n\nfrom .errors import DoesNotFit\n'
    )
    assert carry_module(source, "colossalai_fork.checkpoint_io.errors").startswith(
        '"""Errors of colossalai.checkpoint_io."""'
    )


def test_new_modules_are_found_through_each_other(source, root):
    restore = "from colossalai.checkpoint_io.restore import restore\n"
    assert sorted(imported_new_modules(source, [("colossalai.booster.plugin", restore)])) == [
        "colossalai/checkpoint_io/errors.py",
        "colossalai/checkpoint_io/restore.py",
    ]


def test_modules_of_a_subpackage_come_with_their_packages(source, root, series):
    package = source.root / "colossalai_fork/checkpoint_io"
    write_tree(
        package,
        {
            "parts/__init__.py": '"""Parts."""\n',
            "parts/files/__init__.py": "from .reading import read\n",
            "parts/files/reading.py": "from ..words import word\n\n\ndef read():\n    return word\n",
            "parts/words.py": 'word = "word"\n',
        },
    )
    change_fork(source, "restore.py", "from .errors import", "from .parts.files import read\nfrom .errors import")
    change_fork(source, "restore.py", "optimizer.state = {}", "optimizer.state = {1: read()}")
    maker = make_maker(source, series)
    folder = "colossalai/checkpoint_io"
    parts = [f"{folder}/parts/{name}.py" for name in ("__init__", "files/__init__", "files/reading", "words")]
    assert sorted(maker.brings(series.patches[0])) == [f"{folder}/errors.py", *parts, f"{folder}/restore.py"]
    assert set(parts) <= maker.write(series.patches[0], root)
    assert "from colossalai.checkpoint_io.parts.words import word" in (root / parts[2]).read_text()
    assert "from colossalai.checkpoint_io.parts.files import read" in (root / folder / "restore.py").read_text()


@pytest.mark.parametrize(
    "file, old, new, message",
    [
        ("general.py", "_LIMIT = 3", "LIMIT = 3", "uses _LIMIT, which that module neither imports nor defines"),
        (
            "general.py",
            "from .restore import",
            "from ..overlay import",
            "restore of colossalai_fork.overlay does not go",
        ),
        ("plugin.py", "restore(optimizer", "_checked(optimizer", "uses _checked, which that module neither"),
        ("general.py", '"""Replace the state.', '"""Replace, as in colossalai-fork.', "would name the fork upstream"),
    ],
)
def test_what_cannot_go_upstream_is_refused(source, root, file, old, new, message):
    change_fork(source, file, old, new)
    target = "colossalai/booster/plugin.py" if file == "plugin.py" else "colossalai/checkpoint_io/general.py"
    with pytest.raises(PatchError, match=message):
        grafted(source, root, target)


def test_a_method_of_the_class_that_is_not_carried_is_refused(source, root):
    change_fork(source, "general.py", "restore(optimizer, Index", "self.prepare(optimizer, Index")
    change_fork(
        source, "general.py", "    def confirm", "    def prepare(self, *arguments):\n        pass\n\n    def confirm"
    )
    with pytest.raises(
        PatchError, match="GeneralIO.load of .* uses prepare of its class, for which the table has no row"
    ):
        grafted(source, root, "colossalai/checkpoint_io/general.py")


def test_one_definition_for_two_files_needs_a_row(source, root):
    check_table(source)
    change_fork(source, "general.py", "        restore(optimizer", "        _shared()\n        restore(optimizer")
    change_fork(source, "general.py", "class GeneralIO(", "def _shared():\n    pass\n\n\nclass GeneralIO(")
    change_fork(
        source, "general.py", "    def confirm", "    def finish(self):\n        return _shared()\n\n    def confirm"
    )
    row = source.rows[0]
    elsewhere = Replacement(
        "colossalai.booster.plugin", "PluginIO.finish", row.our_module, "plugin", "GeneralIO.finish", kind="add"
    )
    source.rows.append(elsewhere)
    with pytest.raises(
        PatchError, match="_shared of .* would be copied into colossalai.booster.plugin and colossalai.ch"
    ):
        check_table(source)
    source.rows.append(Replacement(row.module, "_shared", row.our_module, "general", kind="add"))
    check_table(source)
    (root / "colossalai/booster/plugin.py").write_text("class PluginIO:\n    def load(self):\n        pass\n")
    text = graft(source, root, "colossalai/booster/plugin.py", [elsewhere])
    assert text.startswith("from colossalai.checkpoint_io.general import _shared\n")


def test_the_whole_fork_cannot_be_imported_by_a_new_module(source, root):
    change_fork(
        source,
        "restore.py",
        "from .errors",
        "import colossalai_fork.checkpoint_io.errors\nfrom .errors",
    )
    with pytest.raises(PatchError, match='carried code needs the "from" form'):
        carry_module(source, "colossalai_fork.checkpoint_io.restore")


def test_a_name_that_upstream_means_otherwise_is_refused(source, root):
    file = root / "colossalai/checkpoint_io/general.py"
    file.write_text(file.read_text().replace("from functools import reduce", "from functools import reduce as restore"))
    with pytest.raises(
        PatchError, match="takes restore from functools; carried code needs the one of colossalai.checkp"
    ):
        grafted(source, root, "colossalai/checkpoint_io/general.py")
    file.write_text(textwrap.dedent(UPSTREAM["colossalai/checkpoint_io/general.py"]) + "\n\ndef restore():\n    pass\n")
    with pytest.raises(PatchError, match="defines a restore of its own"):
        grafted(source, root, "colossalai/checkpoint_io/general.py")
    file.write_text(
        textwrap.dedent(UPSTREAM["colossalai/checkpoint_io/general.py"]) + "\n\ndef _checked():\n    pass\n"
    )
    with pytest.raises(PatchError, match="has another _checked already"):
        grafted(source, root, "colossalai/checkpoint_io/general.py")


def test_a_re_exported_name_is_the_same_name(source, root):
    file = root / "colossalai/checkpoint_io/general.py"
    assert "from .index import IndexFile" in file.read_text()
    assert carry(source, "colossalai_fork.checkpoint_io.general", "GeneralIO.load", "colossalai.checkpoint_io.general")
    assert grafted(source, root, "colossalai/checkpoint_io/general.py").count("IndexFile\n") == 1


def test_a_name_that_a_package_outside_hands_on_is_the_same_name(source, root):
    change_fork(source, "general.py", "from typing import Optional", "from torch.optim import Optimizer as Optional")
    file = root / "colossalai/checkpoint_io/general.py"
    text = file.read_text()
    file.write_text("from torch.optim.optimizer import Optimizer as Optional\n" + text)
    assert grafted(source, root, "colossalai/checkpoint_io/general.py").count("Optional") == 2
    file.write_text("from torch.optimizer import Optimizer as Optional\n" + text)
    with pytest.raises(
        PatchError, match="takes Optional from torch.optimizer; carried code needs the one of torch.optim"
    ):
        grafted(source, root, "colossalai/checkpoint_io/general.py")


def test_a_method_makes_way_for_the_one_that_its_class_inherits(source, root, series):
    row = source.rows[-1]
    inherit = Replacement(row.module, row.name, row.our_module, row.patch, kind="inherit", known=row.known)
    source.rows[-1] = inherit
    check_table(source)
    assert [finding.verdict for finding in survey(source, Tree(root), [inherit])] == [READY]
    text = graft(source, root, row.file, [inherit])
    assert text == (
        "from colossalai.checkpoint_io import GeneralIO\n\n\nclass PluginIO(GeneralIO):\n    pass\n\n\n"
        "class Plugin:\n    io = PluginIO\n"
    )
    (root / row.file).write_text(text)
    assert [finding.verdict for finding in survey(source, Tree(root), [inherit])] == [OURS]
    (root / row.file).write_text(text.replace("    pass", "    def load(self):\n        return 1"))
    assert [finding.verdict for finding in survey(source, Tree(root), [inherit])] == [CHANGED]


def test_our_name_may_differ(source, root):
    change_fork(source, "general.py", "def load(self", "def load_our_way(self")
    row = source.rows[0]
    row = Replacement(
        row.module, row.name, row.our_module, row.patch, our_name="GeneralIO.load_our_way", known=row.known
    )
    text = graft(source, root, row.file, [row])
    assert '    def load(self, optimizer, index_path):\n        """Replace' in text
    assert "load_our_way" not in text


def test_a_patch_writes_functions_new_modules_and_tests_and_takes_out_what_it_leaves_without_use(source, root, series):
    general, plugin = series.patches
    maker = make_maker(source, series)
    assert maker.write(general, root) == {
        "colossalai/checkpoint_io/errors.py",
        "colossalai/checkpoint_io/general.py",
        "colossalai/checkpoint_io/restore.py",
    }
    assert "def finish_loading" in (root / "colossalai/checkpoint_io/utils.py").read_text()
    assert maker.write(plugin, root) == {"colossalai/booster/plugin.py", "colossalai/checkpoint_io/utils.py"}
    utils = (root / "colossalai/checkpoint_io/utils.py").read_text()
    upstream = textwrap.dedent(UPSTREAM["colossalai/checkpoint_io/utils.py"])
    assert utils == upstream[: upstream.index("\n\ndef finish_loading")]


def test_what_is_still_used_is_not_taken_out(source, root, series):
    (root / "colossalai/user.py").write_text("from .checkpoint_io import utils\n\nutils.finish_loading(None)\n")
    make_maker(source, series).write(series.patches[0], root)
    with pytest.raises(PatchError, match="finish_loading of .* cannot go: colossalai/user.py still uses it"):
        make_maker(source, series).write(series.patches[1], root)


def test_a_file_that_would_be_overwritten_is_refused(source, root, series):
    write_tree(root, {"colossalai/checkpoint_io/restore.py": "def restore(): pass\n"})
    with pytest.raises(DriftError, match="checkpoint_io/restore.py exists already"):
        make_maker(source, series).write(series.patches[0], root)


@pytest.mark.parametrize(
    "statement",
    [
        "match path:\n        case _:\n            pass",
        "(limit := 1)\n    with (open(path) as one, open(path) as two):\n        pass",
        "sizes: list[int] = []",
        "size: int | None = None",
        "pairs = zip((), (), strict=True)",
    ],
)
def test_what_upstreams_oldest_python_lacks_is_refused(statement, source, root, series):
    change_fork(source, "restore.py", "    optimizer.state = {}", f"    {statement}")
    with pytest.raises(PatchError, match="restore.py would not be valid for Python 3.8"):
        make_maker(source, series).write(series.patches[0], root)


def test_nothing_is_written_when_a_function_is_unknown(source, root, series):
    file = root / "colossalai/checkpoint_io/general.py"
    file.write_text(file.read_text().replace("for shard in load_shards(index):", "for shard in load_shards(index, 2):"))
    with pytest.raises(DriftError) as refusal:
        make_maker(source, series).write(series.patches[0], root)
    assert "GeneralIO.load is not as known" in str(refusal.value)
    assert "load_shards(index, 2)" in str(refusal.value)
    assert not (root / "colossalai/checkpoint_io/restore.py").exists()
