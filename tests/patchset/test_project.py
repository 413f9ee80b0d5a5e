"""The project's own series against the sources of the installed ColossalAI."""

import ast
import functools
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from reproduction import REPRODUCTION

pytest.importorskip("libcst", reason="the patch extra is not installed")

from colossalai_fork.overlay import fingerprint
from colossalai_fork.patchset import project, stack
from colossalai_fork.patchset.check import check
from colossalai_fork.patchset.export import format_patch, pull_request, sizes
from colossalai_fork.patchset.finding import CHANGED
from colossalai_fork.patchset.functions.carry import check_table
from colossalai_fork.patchset.functions.known import survey
from colossalai_fork.patchset.text import leftovers
from colossalai_fork.patchset.tree import NOBODY, Tree, git

SERIES = {name: project.series(name) for name in project.NAMES}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The installed package as an unpacked release."""
    package = pathlib.Path(importlib.util.find_spec("colossalai").submodule_search_locations[0])
    root = tmp_path_factory.mktemp("colossalai-sources")
    shutil.copytree(package, root / "colossalai", ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture(scope="module")
def stacks(sources, tmp_path_factory):
    """The commits of each series in a scratch repository, made when they are asked for."""

    @functools.lru_cache(maxsize=None)
    def make(name):
        scratch = tmp_path_factory.mktemp(f"{name}-commits")
        return stack.build(SERIES[name], project.maker(SERIES[name]), Tree(sources), scratch, NOBODY)

    return make


@pytest.fixture(scope="module")
def built(stacks):
    """The contract series."""
    found = stacks("contract")
    return found.root, found.commits


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


@pytest.mark.parametrize("name", project.NAMES)
def test_the_series_fits_the_installed_release(name, sources):
    report = check(SERIES[name], project.maker(SERIES[name]), Tree(sources))
    assert report.fits and not report.fixed, report.text


def test_the_table_can_be_carried_upstream():
    source, series = project.source(), SERIES["contract"]
    check_table(source)
    assert {row.patch for row in source.rows} <= {patch.name for patch in series.patches}


@pytest.mark.parametrize("name", project.NAMES)
def test_every_patch_carries_code_and_tests(name, stacks):
    commits = stacks(name).commits
    assert [commit.patch.name for commit in commits] == [patch.name for patch in SERIES[name].patches]
    for commit in commits:
        size = sizes(stacks(name).root, commit)
        assert (size["existing"], size["new"]) != ((0, 0), (0, 0)) and size["tests"][0] > 0, commit.patch.name
        assert all(file in commit.files for file in commit.patch.tests)
        assert "colossalai_fork" not in format_patch(stacks(name).root, commit)


def test_patches_of_the_fix_series_are_small(stacks):
    changed = {}
    for commit in stacks("fix").commits:
        size = sizes(stacks("fix").root, commit)
        assert size["new"] == (0, 0)
        changed[commit.patch.name] = sum(size["existing"])
    assert changed.pop("reset-general") <= 20
    assert max(changed.values()) <= 80, changed


def test_the_first_fix_alone_closes_the_report(sources, tmp_path):
    series = SERIES["fix"]
    author, first = NOBODY, series.patches[0].name
    alone = stack.build(series, project.maker(series), Tree(sources), tmp_path / "first", author, only=first)
    assert [commit.patch.name for commit in alone.commits] == [first]
    for root, printed in ((sources, "{'momentum_buffer': tensor([1.])}\n0.81\n"), (alone.root, "{}\n0.9\n")):
        command = [sys.executable, "-W", "ignore", "-c", REPRODUCTION]
        done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True)
        assert done.stdout.decode() == printed, done.stderr.decode()


@pytest.mark.parametrize("name", project.NAMES)
def test_the_patched_tree_has_them_all(name, stacks):
    report = check(SERIES[name], project.maker(SERIES[name]), Tree(stacks(name).root))
    assert report.fixed, report.text


def test_the_contract_series_goes_on_top_of_any_prefix_of_the_fix_series(stacks, tmp_path):
    series, fixed = SERIES["contract"], stacks("fix")
    maker = project.maker(series)
    for number, commit in enumerate(fixed.commits, 1):
        tree = tmp_path / f"{number}"
        git(fixed.root, "worktree", "add", "--quiet", "--detach", str(tree), commit.id)
        states = stack.look(series, maker, tree)
        assert not [change for state in states for change in state.changes], commit.patch.name
        assert not any(state.is_in for state in states)
    made = stack.build(series, maker, Tree(tree), tmp_path / "contract", NOBODY)
    assert [each.patch.name for each in made.commits] == [patch.name for patch in series.patches]
    report = check(SERIES["fix"], project.maker(SERIES["fix"]), Tree(made.root))
    assert report.fits, report.text


@pytest.mark.parametrize("name", project.NAMES)
def test_the_measured_points_are_those_of_the_series(name):
    series = SERIES[name]
    assert set(series.points.measured) <= {"", *(patch.name for patch in series.patches)}
    for patch in series.patches:
        measured = series.points.measured.get(patch.name, {})
        assert {each.replace("CheckpointIO", "") for each in measured} <= set(patch.classes), patch.name
        before = {each: series.points.before(patch.name, each) for each in measured}
        for each, points in measured.items():
            lost = {point for point, (held, _) in points.items() if held < before[each].get(point, [0])[0]}
            assert not lost, f"{patch.name} loses cases of {each}: points {lost}"


@pytest.mark.parametrize("name", project.NAMES)
def test_the_texts_are_short_and_tick_nothing_for_people(name, stacks):
    for commit in stacks(name).commits:
        text = pull_request(SERIES[name], stacks(name).root, commit)
        ticked = [line for line in text.splitlines() if line.startswith("- [x]")]
        assert not any(word in line for line in ticked for word in ("I ", "installed", "Tags")), ticked
        assert len(commit.patch.title) <= 72
        assert all(len(line) <= 72 for line in commit.patch.message.splitlines()), commit.patch.name
        assert len(commit.patch.request.splitlines()) <= 35


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
    (finding,) = survey(project.source(), Tree(root), [row])
    assert finding.verdict == CHANGED
    assert f"{row.file}:{found.first_line}: {row.name} is not as known" in finding.change
    assert f"+{new_line}" in finding.change
