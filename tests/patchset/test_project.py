"""The project's own series against the sources of the installed ColossalAI."""

import ast
import dataclasses
import importlib.util
import pathlib
import shutil

import pytest

pytest.importorskip("libcst", reason="the patch extra is not installed")

import colossalai_fork
from colossalai_fork.overlay import fingerprint
from colossalai_fork.patchset import leftovers, project, stack
from colossalai_fork.patchset.check import check
from colossalai_fork.patchset.errors import DriftError
from colossalai_fork.patchset.export import export, format_patch, sizes
from colossalai_fork.patchset.functions.carry import check_table
from colossalai_fork.patchset.tree import FALLBACK_IDENTITY, Tree, git


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The installed package as an unpacked release."""
    package = pathlib.Path(importlib.util.find_spec("colossalai").submodule_search_locations[0])
    root = tmp_path_factory.mktemp("colossalai-sources")
    shutil.copytree(package, root / "colossalai", ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture(scope="module")
def built(sources, tmp_path_factory):
    """The series' commits in a scratch repository."""
    series = project.series()
    scratch = tmp_path_factory.mktemp("commits")
    root, commits = stack.build(series, project.source(), Tree(sources), scratch, FALLBACK_IDENTITY, series.date)
    return root, commits


def code_lines(text):
    """Count the lines of a function that hold code: no docstring, comments or blank lines."""
    tree = ast.parse(text if not text[0].isspace() else "if True:\n" + text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return len({node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)} | _continued(tree))


def _continued(tree):
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
        for line in range(node.lineno, node.end_lineno + 1)
    }


def test_the_series_fits_the_installed_release(sources):
    report = check(project.series(), project.source(), Tree(sources))
    assert report.fits and not report.fixed, report.text


def test_the_table_can_be_carried_upstream():
    source, series = project.source(), project.series()
    series.check_rows(source.rows)
    check_table(source)
    assert {patch.name for patch in series.patches} == {row.patch for row in source.rows}


def test_every_contract_belongs_to_a_patch():
    suite = pathlib.Path(colossalai_fork.__file__).parent / "gate" / "suite"
    listed = sorted(name for patch in project.series().patches for name in patch.contract)
    # The CUDA cases need a GPU; `tox run -e cuda` is for a machine that has one.
    assert listed == sorted(
        f"suite/{file.name}" for file in suite.glob("test_*.py") if not file.name.startswith("test_cuda")
    )


def test_every_patch_carries_functions_and_tests(built):
    root, commits = built
    assert [commit.patch.name for commit in commits] == [patch.name for patch in project.series().patches]
    for commit in commits:
        size = sizes(root, commit)
        assert size["existing"] != (0, 0) and size["tests"][0] > 0, commit.patch.name
        assert all(name in commit.files for name in commit.patch.tests)
        assert "colossalai_fork" not in format_patch(root, commit)


def test_the_patched_tree_has_them_all(built):
    root, _ = built
    report = check(project.series(), project.source(), Tree(root))
    assert report.fixed, report.text


def test_the_loaders_get_shorter_with_what_is_added_counted(built):
    root, commits = built
    first = git(root, "rev-parse", f"{commits[0].id}~").strip()
    before = after = 0
    for row in project.source().rows:
        old = fingerprint.find_in_module(git(root, "show", f"{first}:{row.file}"), row.name)
        new = fingerprint.find_in_module((root / row.file).read_text(), row.name)
        before += code_lines(old.text) if old is not None else 0
        after += code_lines(new.text) if new is not None else 0
    assert after < before


def test_nothing_is_left_without_use(sources, built):
    root, _ = built
    unused = leftovers.without_use(leftovers.Uses(sources), leftovers.Uses(root))
    # Part of an interface that others may use.
    assert unused == [("colossalai/checkpoint_io/index_file.py", "CheckpointIndexFile.get_param_group_filename")]


@pytest.mark.parametrize("row", [row for row in project.source().rows if row.kind != "add"], ids=lambda row: row.symbol)
def test_a_change_in_any_replaced_function_is_noticed(row, sources, tmp_path):
    root = tmp_path / "tree"
    (root / "colossalai" / "checkpoint_io").mkdir(parents=True)
    (root / row.file).parent.mkdir(parents=True, exist_ok=True)
    text = (sources / row.file).read_text()
    found = fingerprint.find_in_module(text, row.name)
    last = found.text.rstrip("\n").splitlines()[-1]
    new_line = last[: len(last) - len(last.lstrip())] + "changed_by_upstream = True"
    (root / row.file).write_text(text.replace(found.text, found.text.rstrip("\n") + "\n" + new_line + "\n"))
    # Looking at this row alone takes a thirtieth of the time.
    source = dataclasses.replace(project.source(), rows=[row])
    report = check(project.series(), source, Tree(root))
    assert not report.fits
    assert f"{row.file}:{found.first_line}: {row.name} is not as known" in report.text
    assert f"+{new_line}" in report.text
    with pytest.raises(DriftError, match="changed_by_upstream"):
        export(project.series(), source, Tree(root), tmp_path / "out")
