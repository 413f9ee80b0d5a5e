"""A small upstream, a small fork with a table, and a series, written into a temporary directory."""

import subprocess
import textwrap

from colossalai_fork.overlay import fingerprint
from colossalai_fork.overlay.table import Replacement
from colossalai_fork.patchset.functions.maker import Functions
from colossalai_fork.patchset.functions.source import Source
from colossalai_fork.patchset.series import read

UPSTREAM = {
    "colossalai/__init__.py": "",
    "colossalai/checkpoint_io/__init__.py": """\
        from .general import GeneralIO
        from .index import IndexFile

        __all__ = ["GeneralIO", "IndexFile"]
        """,
    "colossalai/checkpoint_io/index.py": """\
        class IndexFile:
            def __init__(self, path):
                self.path = path
        """,
    "colossalai/checkpoint_io/general.py": '''\
        import logging
        import os
        from functools import reduce
        from pathlib import Path

        from .index import IndexFile
        from .utils import load_groups, load_shards, load_states, save_states

        __all__ = ["GeneralIO"]


        class GeneralIO:
            """Loads   and saves."""

            def save(self, optimizer, path):
                # one line
                path = Path( path )
                save_states(optimizer, path)

            # Reads everything.
            def load(self, optimizer, index_path):
                index = IndexFile(index_path)
                id_map = load_groups(optimizer, index.path)
                for shard in load_shards(index):
                    load_states(optimizer, shard, id_map)

            def size(self, paths):
                logging.info("size")
                return reduce(lambda a, b: a + b, map(os.path.getsize, paths), 0)
        ''',
    "colossalai/checkpoint_io/utils.py": """\
        # coding=utf-8
        import json
        from itertools import chain

        # ======
        # Saving
        # ======


        def save_states(optimizer, path):
            path.write_text(json.dumps(optimizer.state))


        # =======
        # Loading
        # =======


        def load_groups(optimizer, path):
            return dict(enumerate(chain(optimizer.param_groups)))


        def load_shards(index):
            yield json.loads(index.path.read_text())


        def load_states(optimizer, state, id_map):
            optimizer.state.update(state)


        def finish_loading(optimizer):
            optimizer.loaded = True
        """,
    "colossalai/booster/__init__.py": "",
    "colossalai/booster/plugin.py": """\
        from colossalai.checkpoint_io import GeneralIO
        from colossalai.checkpoint_io.utils import finish_loading


        class PluginIO(GeneralIO):
            def load(self, optimizer, index_path):
                super().load(optimizer, index_path)
                finish_loading(optimizer)


        class Plugin:
            io = PluginIO
        """,
}

FORK = {
    "__init__.py": "",
    "checkpoint_io/__init__.py": "from .general import GeneralIO\n",
    "checkpoint_io/errors.py": '''\
        """Errors of colossalai_fork.checkpoint_io."""


        class DoesNotFit(ValueError):
            """The checkpoint does not fit."""
        ''',
    "checkpoint_io/restore.py": '''\
        """Restores."""

        from colossalai.checkpoint_io.index import IndexFile

        from .errors import DoesNotFit


        def restore(optimizer, path):
            """Replace the state, or raise :class:`DoesNotFit`."""
            if not isinstance(path, IndexFile):
                raise DoesNotFit(f"no index: {path}")
            optimizer.state = {}
        ''',
    "checkpoint_io/general.py": '''\
        """Loaders."""

        from typing import Optional

        import colossalai.checkpoint_io.general as upstream
        from colossalai.checkpoint_io import IndexFile

        from .errors import DoesNotFit
        from .restore import restore

        _LIMIT = 3


        def _checked(path: "Optional[str]"):
            """Refuse a long path."""
            if len(path) > _LIMIT:
                raise DoesNotFit(path)
            return path


        class GeneralIO(upstream.GeneralIO):
            """Not carried."""

            def load(self, optimizer, index_path):
                """Replace the state.

                Args:
                    optimizer (Optimizer): whose state.
                """
                assert issubclass(upstream.GeneralIO, object)
                restore(optimizer, IndexFile(_checked(index_path)))

            def confirm(self, optimizer):
                """Tell whether the state is new."""
                from .errors import DoesNotFit

                if not optimizer.state:
                    raise DoesNotFit(optimizer)
        ''',
    "checkpoint_io/plugin.py": '''\
        """Loaders of plugins."""

        from colossalai.booster import plugin as upstream

        from .general import GeneralIO
        from .restore import restore


        class PluginIO(upstream.PluginIO, GeneralIO):
            """Not carried."""

            def load(self, optimizer, index_path):
                """Replace the state."""
                GeneralIO.load(self, optimizer, index_path)
                restore(optimizer, index_path)
        ''',
}

SERIES = {
    "series.ini": """\
        [series]
        branch = hotfix/replace-state

        [general]
        title = [checkpointio] replace the state
        text = general.md
        issue = closed #1
        tests = test_general_loading.py

        [plugin]
        title = [checkpointio] replace the state in plugins
        text = plugin.md
        issue = part of #1
        removes = colossalai/checkpoint_io/utils.py:finish_loading
        """,
    "general.md": "# Commit message\nBecause.\n\nCloses #1.\n# Pull request\nReplaces the state.\n",
    "plugin.md": "# Commit message\nBecause, too.\n# Pull request\nReplaces it in plugins.\n",
    "pull_request.md": "$title\n\n$issue\n\n$body\n\n$size\n\npatch $place\n",
    "cover.md": "All of it:\n\n$patches\n",
    "tests/test_general_loading.py": """\
        from colossalai.checkpoint_io.restore import restore


        def test_restore():
            assert restore
        """,
}

ROWS = [
    ("colossalai.checkpoint_io.general", "GeneralIO.load", "general", "general", "replace"),
    ("colossalai.checkpoint_io.general", "GeneralIO.confirm", "general", "general", "add"),
    ("colossalai.booster.plugin", "PluginIO.load", "plugin", "plugin", "replace"),
]


def write_tree(root, files):
    """Write files given as indented texts."""
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def make_upstream(root):
    """Write the small upstream, without a history."""
    return write_tree(root, UPSTREAM)


def make_source(root, rows=ROWS):
    """Write the small fork and its table."""
    write_tree(root / "colossalai_fork", FORK)
    table = []
    for module, name, ours, patch, kind in rows:
        text = textwrap.dedent(UPSTREAM[module.replace(".", "/") + ".py"])
        found = fingerprint.find_in_module(text, name)
        known = {"0.5.0": found.fingerprint} if found else {}
        table.append(Replacement(module, name, f"colossalai_fork.checkpoint_io.{ours}", patch, kind=kind, known=known))
    return Source(root, "colossalai_fork.checkpoint_io", "colossalai.checkpoint_io", table)


def make_series(root):
    """Write the small series."""
    return read(write_tree(root, SERIES))


def make_maker(source, series):
    """Make the patches of the small series out of the small fork."""
    return Functions(source, series)


def git(root, *arguments):
    """Run git in a test's repository."""
    done = subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def commit_all(root, message="Upstream"):
    """Make a repository of a directory if it is none, and commit everything in it."""
    if not (root / ".git").exists():
        git(root, "init", "--quiet", "--initial-branch=main")
        git(root, "config", "user.name", "A Contributor")
        git(root, "config", "user.email", "a.contributor@example.com")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", message)
    return git(root, "rev-parse", "HEAD").strip()
