import subprocess

import pytest

pytest.importorskip("libcst", reason="the patch extra is not installed")

from click.testing import CliRunner
from patchset_trees import commit_all, git, make_maker, make_series, make_source, make_upstream, write_tree

from colossalai_fork.cli.patch import patch as command
from colossalai_fork.patchset import project
from colossalai_fork.patchset.apply import apply
from colossalai_fork.patchset.check import check
from colossalai_fork.patchset.errors import DriftError, PatchError
from colossalai_fork.patchset.export import export
from colossalai_fork.patchset.series import read
from colossalai_fork.patchset.tree import Tree

GENERAL = "colossalai/checkpoint_io/general.py"
NAMES = [
    "0000-cover-letter.md",
    "0001-checkpointio-replace-the-state.md",
    "0001-checkpointio-replace-the-state.patch",
    "0002-checkpointio-replace-the-state-in-plugins.md",
    "0002-checkpointio-replace-the-state-in-plugins.patch",
]


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    """Keep the machine's own git settings out."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "AUTHOR_DATE", "COMMITTER_NAME", "COMMITTER_EMAIL", "COMMITTER_DATE"):
        monkeypatch.delenv(f"GIT_{name}", raising=False)
    monkeypatch.delenv("EMAIL", raising=False)


@pytest.fixture
def somebody(monkeypatch):
    """Name a contributor in the environment."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A Contributor")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a.contributor@example.com")


@pytest.fixture
def sdist(tmp_path):
    return make_upstream(tmp_path / "sdist")


@pytest.fixture
def checkout(tmp_path):
    root = make_upstream(tmp_path / "checkout")
    commit_all(root)
    return root


@pytest.fixture
def source(tmp_path):
    return make_source(tmp_path / "fork")


@pytest.fixture
def maker(source, series):
    return make_maker(source, series)


@pytest.fixture
def series(tmp_path):
    return make_series(tmp_path / "series")


def edit(root, file, old, new):
    path = root / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def change_one_line(root):
    edit(root, GENERAL, "load_states(optimizer, shard, id_map)", "load_states(optimizer, shard, id_map, True)")


def contents(root):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("kind", ["sdist", "checkout"])
def test_exported_patches_apply_and_make_the_same_tree_as_apply(somebody, kind, request, tmp_path, maker, series):
    root = request.getfixturevalue(kind)
    before = contents(root)
    files = export(series, maker, Tree(root), tmp_path / "out")
    assert [file.name for file in files] == NAMES
    assert contents(root) == before, "exporting changed the tree"
    if kind == "sdist":
        commit_all(root)
    git(root, "checkout", "--quiet", "-b", "by-hand")
    git(root, "am", "--keep-non-patch", *[str(file) for file in files if file.suffix == ".patch"])
    git(root, "checkout", "--quiet", "main")
    branch, commits = apply(series, maker, Tree(root))
    assert branch == "hotfix/replace-state"
    assert git(root, "rev-parse", "--abbrev-ref", "HEAD").strip() == branch
    assert git(root, "diff", "by-hand", branch) == ""
    for name in ("by-hand", branch):
        log = git(root, "log", "--format=%an|%s|%b", f"main..{name}").strip()
        assert f"A Contributor|[checkpointio] replace the state in plugins|Because, too." in log
        assert f"A Contributor|[checkpointio] replace the state|Because.\n\nCloses #1." in log
    assert [commit.id for commit in commits] == git(root, "rev-list", "--reverse", f"main..{branch}").split()
    assert git(root, "status", "--porcelain") == ""


@pytest.mark.parametrize("kind", ["sdist", "checkout"])
def test_two_exports_are_equal_to_the_byte(somebody, kind, request, tmp_path, maker, series, monkeypatch):
    tree = Tree(request.getfixturevalue(kind))
    export(series, maker, tree, tmp_path / "one")
    # A user's own settings must not show in the patches.
    config = tmp_path / "gitconfig"
    config.write_text(
        "[diff]\nnoprefix = true\ncontext = 9\nalgorithm = patience\n[format]\nsignature = me\nattach = true\n"
        "[core]\nautocrlf = true\nabbrev = 7\n[commit]\ngpgSign = true\n"
    )
    git_config = {"GIT_CONFIG_GLOBAL": str(config), "GIT_CONTEXT_LINES": "1", "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8"}
    if kind == "checkout":
        for key, value in git_config.items():
            monkeypatch.setenv(key, value)
    export(series, maker, tree, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_the_form_of_a_patch(checkout, tmp_path, maker, series):
    text = export(series, maker, Tree(checkout), tmp_path / "out")[2].read_text()
    lines = text.splitlines()
    assert lines[0] == "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001"
    parent = git(checkout, "log", "-1", "--format=%cD").strip()
    assert f"Date: {parent}" in lines and "From: A Contributor <a.contributor@example.com>" in lines
    assert "Subject: [PATCH] [checkpointio] replace the state" in lines
    indexes = [line for line in lines if line.startswith("index ")]
    assert len(indexes) == 4 and all(len(line.split()[1]) == 82 for line in indexes)
    assert "-- " not in lines, "a signature names the git version"


def test_the_texts_of_the_pull_requests(checkout, tmp_path, maker, series):
    files = export(series, maker, Tree(checkout), tmp_path / "out")
    request = files[1].read_text()
    assert "closed #1\n\nReplaces the state.\n" in request
    assert "patch 1 of 2" in request
    patch = files[2].read_text().split("\n---\n")[1]
    removed = sum(line.startswith("-") and not line.startswith("---") for line in patch.splitlines())
    assert f"−{removed} lines in existing files, 16 lines in new modules, +5 −0 lines of tests" in request
    assert "| 2 | [checkpointio] replace the state in plugins |" in files[0].read_text()


def test_one_patch_of_the_series(checkout, tmp_path, maker, series):
    files = export(series, maker, Tree(checkout), tmp_path / "out", only="plugin")
    assert [file.name for file in files] == [NAMES[0], *NAMES[3:]]
    whole = export(series, maker, Tree(checkout), tmp_path / "all")
    assert files[2].read_bytes() == whole[4].read_bytes()
    with pytest.raises(PatchError, match="no patch 'plugins'; it has general, plugin"):
        export(series, maker, Tree(checkout), tmp_path / "out", only="plugins")


def test_a_series_goes_on_where_the_tree_is(checkout, tmp_path, maker, series):
    apply(series, maker, Tree(checkout), "all")
    git(checkout, "checkout", "--quiet", "-b", "first", "all~1")
    assert "general: already in\nplugin: fits" in check(series, maker, Tree(checkout)).text
    files = export(series, maker, Tree(checkout), tmp_path / "out")
    assert [file.name for file in files] == [NAMES[0], *NAMES[3:]]
    _, commits = apply(series, maker, Tree(checkout), "rest")
    assert git(checkout, "diff", "rest", "all") == ""
    assert len(commits) == 1
    report = check(series, maker, Tree(checkout))
    assert report.fits and report.fixed and report.text.endswith("every patch of the series is in this tree")
    for action in (
        lambda: apply(series, maker, Tree(checkout), "x"),
        lambda: export(series, maker, Tree(checkout), "x"),
    ):
        with pytest.raises(PatchError, match="has these patches already"):
            action()


def test_a_changed_line_is_refused_with_a_diff(checkout, tmp_path, maker, series):
    change_one_line(checkout)
    commit_all(checkout, "Change a loader")
    head, before = git(checkout, "rev-parse", "HEAD"), contents(checkout)
    report = check(series, maker, Tree(checkout))
    assert not report.fits
    refusals = [report.text]
    for action in (
        lambda: export(series, maker, Tree(checkout), tmp_path / "out"),
        lambda: apply(series, maker, Tree(checkout)),
    ):
        with pytest.raises(DriftError) as refusal:
            action()
        refusals.append(str(refusal.value))
    for text in refusals:
        assert f"{GENERAL}:21: GeneralIO.load is not as known" in text
        assert "\n-            load_states(optimizer, shard, id_map)\n" in text
        assert "\n+            load_states(optimizer, shard, id_map, True)" in text
    assert not (tmp_path / "out").exists()
    assert git(checkout, "rev-parse", "HEAD") == head
    assert git(checkout, "branch", "--list") == "* main\n"
    assert {k: v for k, v in contents(checkout).items() if ".git/" not in k} == {
        k: v for k, v in before.items() if ".git/" not in k
    }


def test_a_tree_that_was_fixed_in_another_way_is_fixed(checkout, maker, series):
    asked = []
    check(series, maker, Tree(checkout), lambda: asked.append(True))
    assert not asked, "running the contract takes minutes, and nothing has changed"
    change_one_line(checkout)
    commit_all(checkout, "Change a loader")
    report = check(series, maker, Tree(checkout), lambda: True)
    assert report.fits and report.fixed and "already fixed" in report.text
    report = check(series, maker, Tree(checkout), lambda: False)
    assert not report.fits and "is not as known" in report.text


def test_without_a_history_the_changed_statement_is_shown(somebody, sdist, tmp_path, maker, series):
    change_one_line(sdist)
    with pytest.raises(DriftError, match=r"load_states\(optimizer, shard, id_map, True\)"):
        export(series, maker, Tree(sdist), tmp_path / "out")


def test_a_comment_or_another_layout_is_no_drift(checkout, maker, series):
    edit(checkout, GENERAL, "index = IndexFile(index_path)", "index = IndexFile(\n            index_path)  # read")
    commit_all(checkout, "Break a line")
    assert check(series, maker, Tree(checkout)).fits


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("    def load(", "    def read(", "no longer has GeneralIO.load"),
        ("    def size(", "    def confirm(self):\n        pass\n\n    def size(", "GeneralIO.confirm exists already"),
        ("class GeneralIO:", "class GeneralIO", "is not Python"),
    ],
)
def test_other_changes_are_refused(old, new, message, checkout, maker, series):
    edit(checkout, GENERAL, old, new)
    commit_all(checkout, "Change a loader")
    report = check(series, maker, Tree(checkout))
    assert not report.fits and message in report.text


def test_a_file_that_is_gone_is_refused(checkout, maker, series):
    (checkout / GENERAL).unlink()
    commit_all(checkout, "Take it out")
    assert f"{GENERAL} is gone, which had GeneralIO.load" in check(series, maker, Tree(checkout)).text


def test_a_dirty_checkout_is_refused(checkout, tmp_path, maker, series):
    (checkout / "notes.txt").write_text("mine")
    with pytest.raises(PatchError, match=r"uncommitted changes(?s:.)*notes.txt"):
        apply(series, maker, Tree(checkout))
    # The patches are made from the last commit, which that file is no part of.
    export(series, maker, Tree(checkout), tmp_path / "out")
    edit(checkout, GENERAL, "def save(self, optimizer, path):", "def save(self, optimizer, path, fast=False):")
    refusal = f"commit or undo the changes in {GENERAL} first"
    with pytest.raises(PatchError, match=refusal):
        export(series, maker, Tree(checkout), tmp_path / "out")
    report = check(series, maker, Tree(checkout))
    assert not report.fits and refusal in report.text


def test_apply_undoes_itself_when_a_patch_cannot_be_made(checkout, maker, series):
    series.patches[1].removes.append(("colossalai/checkpoint_io/utils.py", "save_states", True))
    before, head = contents(checkout), git(checkout, "rev-parse", "HEAD")
    with pytest.raises(PatchError, match="save_states of .* cannot go"):
        apply(series, maker, Tree(checkout))
    assert git(checkout, "rev-parse", "HEAD") == head
    assert git(checkout, "branch", "--list") == "* main\n"
    assert {k: v for k, v in contents(checkout).items() if k != ".git/index"} == {
        k: v for k, v in before.items() if k != ".git/index"
    }


def test_apply_undoes_itself_when_the_branch_cannot_be_checked_out(checkout, maker, series):
    (checkout / ".git/index.lock").touch()
    with pytest.raises(PatchError, match="index.lock"):
        apply(series, maker, Tree(checkout))
    assert git(checkout, "branch", "--list") == "* main\n"
    assert not (checkout / "colossalai/checkpoint_io/restore.py").exists()


def test_apply_does_not_overwrite_an_ignored_file(checkout, maker, series):
    (checkout / ".gitignore").write_text("restore.py\n")
    commit_all(checkout, "Ignore")
    write_tree(checkout, {"colossalai/checkpoint_io/restore.py": "mine"})
    with pytest.raises(PatchError, match="git ignores colossalai/checkpoint_io/restore.py"):
        apply(series, maker, Tree(checkout))
    assert git(checkout, "branch", "--list") == "* main\n"
    assert (checkout / "colossalai/checkpoint_io/restore.py").read_text() == "mine"


def test_apply_needs_a_checkout_and_a_free_branch(sdist, checkout, maker, series):
    with pytest.raises(PatchError, match="not a git checkout"):
        apply(series, maker, Tree(sdist))
    git(checkout, "branch", "taken")
    with pytest.raises(PatchError, match="has a branch taken already"):
        apply(series, maker, Tree(checkout), "taken")


def test_a_directory_without_colossalai_is_refused(tmp_path):
    with pytest.raises(PatchError, match="holds no ColossalAI sources"):
        Tree(tmp_path)


def test_the_table_and_the_series_name_the_same_patches(somebody, sdist, source, maker, series, tmp_path):
    source.rows.append(type(source.rows[0])("a.b", "c", source.rows[0].our_module, "forgotten"))
    with pytest.raises(PatchError, match="the series lacks: .'forgotten'"):
        export(series, maker, Tree(sdist), tmp_path / "out")


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        ("series.ini", "[checkpointio] replace the state\n", "Replace the state\n", "must read '.checkpointio"),
        ("series.ini", "[checkpointio] replace the state\n", "[checkpointio] Replace the state\n", "lower case"),
        ("series.ini", "test_general_loading.py", "test_absent.py", "there is no test test_absent.py"),
        ("series.ini", "text = general.md", "text = absent.md", "lacks absent.md"),
        ("general.md", "# Pull request", "# Request", "needs the headings"),
    ],
)
def test_a_broken_series_is_refused(name, old, new, message, tmp_path, series):
    edit(series.folder, name, old, new)
    with pytest.raises(PatchError, match=message):
        read(series.folder)


@pytest.fixture
def as_project(monkeypatch, source, series):
    monkeypatch.setattr(project, "source", lambda: source)
    monkeypatch.setattr(project, "series", lambda name: series)
    monkeypatch.setattr(project, "maker", lambda found: make_maker(source, found))


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_command_check(as_project, checkout):
    result = run("check", "--upstream", checkout)
    assert result.exit_code == 0 and result.output.endswith("the series fits this tree\n")
    change_one_line(checkout)
    commit_all(checkout, "Change a loader")
    result = run("check", "--upstream", checkout)
    assert result.exit_code == 1 and "+            load_states(optimizer, shard, id_map, True)" in result.output


def test_command_export(as_project, checkout, tmp_path):
    result = run("export", "--upstream", checkout, "--output", tmp_path / "it's out")
    assert result.exit_code == 0, result.output
    commands = [line for line in result.output.splitlines() if "git am" in line]
    subprocess.run(commands[0].partition(": ")[2], shell=True, check=True, cwd=checkout, capture_output=True)
    assert git(checkout, "log", "-1", "--format=%s").strip() == "[checkpointio] replace the state in plugins"
    assert run("export", "--upstream", checkout, "--output", tmp_path / "x").exit_code == 1


def test_command_apply(as_project, checkout):
    result = run("apply", "--upstream", checkout, "--branch", "mine")
    assert result.exit_code == 0 and result.output.endswith("2 commits on branch mine\n")
    assert git(checkout, "rev-parse", "--abbrev-ref", "HEAD").strip() == "mine"
    result = run("check", "--upstream", checkout)
    assert result.exit_code == 0 and "already fixed" in result.output
    result = run("apply", "--upstream", checkout, "--branch", "again")
    assert result.exit_code == 1 and result.output.startswith("Error: there is nothing to apply")


def test_nobody_is_made_up(sdist, checkout, tmp_path, maker, series):
    git(checkout, "config", "--unset", "user.name")
    for action in (
        lambda: export(series, maker, Tree(sdist), tmp_path / "out"),
        lambda: export(series, maker, Tree(checkout), tmp_path / "out"),
        lambda: apply(series, maker, Tree(checkout)),
    ):
        with pytest.raises(PatchError, match="does not know whose commits these are"):
            action()
    assert check(series, maker, Tree(checkout)).fits, "looking takes nobody"


def test_author_date_and_sign_off_are_the_contributors(checkout, tmp_path, maker, series, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Another")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2031-02-03T04:05:06+0800")
    lines = export(series, maker, Tree(checkout), tmp_path / "one")[2].read_text().splitlines()
    assert "From: Another <a.contributor@example.com>" in lines
    assert "Date: Mon, 3 Feb 2031 04:05:06 +0800" in lines
    signed = "Signed-off-by: A Contributor <a.contributor@example.com>"
    assert signed not in lines
    assert signed in export(series, maker, Tree(checkout), tmp_path / "two", signoff=True)[2].read_text()
    git(checkout, "config", "format.signOff", "true")
    assert signed in export(series, maker, Tree(checkout), tmp_path / "three")[2].read_text()
    assert signed not in export(series, maker, Tree(checkout), tmp_path / "four", signoff=False)[2].read_text()
    apply(series, maker, Tree(checkout), "signed")
    assert (
        git(checkout, "log", "-1", "--format=%an|%ad", "--date=iso", "signed") == "Another|2031-02-03 04:05:06 +0800\n"
    )
    assert signed in git(checkout, "log", "-1", "--format=%b", "signed")


def test_no_commit_is_older_than_its_parent(checkout, tmp_path, maker, series, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-02-03T04:05:06Z")
    for action in (
        lambda: export(series, maker, Tree(checkout), tmp_path / "out"),
        lambda: apply(series, maker, Tree(checkout)),
    ):
        with pytest.raises(PatchError, match="GIT_AUTHOR_DATE is 2001-02-03T04:05:06.00:00, before the last commit"):
            action()


def test_an_unrelated_edit_does_not_disturb(checkout, tmp_path, maker, series):
    edit(checkout, GENERAL, 'logging.info("size")', 'logging.info("sizes")')
    commit_all(checkout, "Reword")
    assert check(series, maker, Tree(checkout)).fits
    files = [str(file) for file in export(series, maker, Tree(checkout), tmp_path / "out") if file.suffix == ".patch"]
    git(checkout, "am", "--keep-non-patch", *files)
    assert 'logging.info("sizes")' in (checkout / GENERAL).read_text()


def test_lines_that_end_otherwise_are_refused(checkout, tmp_path, maker, series):
    (checkout / GENERAL).write_bytes((checkout / GENERAL).read_bytes().replace(b"\n", b"\r\n"))
    commit_all(checkout, "Edit on another system")
    report = check(series, maker, Tree(checkout))
    assert not report.fits and f"{GENERAL} has CRLF line ends" in report.text
    with pytest.raises(DriftError, match="has CRLF line ends"):
        export(series, maker, Tree(checkout), tmp_path / "out")


def test_another_file_in_the_place_of_a_new_module_is_refused(checkout, tmp_path, maker, series):
    write_tree(checkout, {"colossalai/checkpoint_io/restore.py": "def restore(): pass\n"})
    commit_all(checkout, "Add a module")
    report = check(series, maker, Tree(checkout))
    assert not report.fits and "restore.py exists already" in report.text
    with pytest.raises(DriftError, match="restore.py exists already"):
        export(series, maker, Tree(checkout), tmp_path / "out")


REVIEWS = {
    "a docstring": ("colossalai/checkpoint_io/general.py", '"""Replace the state.', '"""Replace all of the state.'),
    "a message": ("colossalai/checkpoint_io/restore.py", 'f"no index: {path}"', 'f"{path} is no index"'),
    "a function": ("colossalai/checkpoint_io/general.py", "if not optimizer.state:", "if len(optimizer.state) == 0:"),
    "a module": ("colossalai/checkpoint_io/restore.py", "optimizer.state = {}", "optimizer.state = dict()"),
}


@pytest.mark.parametrize("reviewed", sorted(REVIEWS))
def test_a_reviewed_patch_does_not_block_the_next(reviewed, checkout, tmp_path, maker, series):
    apply(series, maker, Tree(checkout), "all")
    git(checkout, "checkout", "--quiet", "-b", "first", "all~1")
    edit(checkout, *REVIEWS[reviewed])
    (checkout / "tests/test_checkpoint_io/test_general_loading.py").unlink()
    # Only other code needs the commit's title to be recognised.
    title = "Reworded" if reviewed in ("a docstring", "a message") else f"{series.patches[0].title} (#7)"
    git(checkout, "commit", "--quiet", "--all", "--amend", "--message", title)
    report = check(series, maker, Tree(checkout))
    assert report.fits and not report.fixed, report.text
    assert report.text.startswith("general: already in")
    if reviewed != "a docstring":
        assert any(line[:1] == "+" and REVIEWS[reviewed][2] in line for line in report.text.splitlines()), report.text
    files = export(series, maker, Tree(checkout), tmp_path / "out")
    assert [file.name for file in files] == [NAMES[0], *NAMES[3:]]
    cover = files[0].read_text()
    assert "1 of the 2 patches" in cover and "`[checkpointio] replace the state` is in the tree already" in cover
    assert "Replaces it in plugins." in cover and "All of it" not in cover
    git(checkout, "am", "--keep-non-patch", str(files[2]))


def test_a_reverted_patch_is_not_in(checkout, tmp_path, maker, series):
    apply(series, maker, Tree(checkout), "all")
    git(checkout, "revert", "--no-edit", "HEAD", "HEAD~1")
    assert "general: fits" in check(series, maker, Tree(checkout)).text
    assert len(export(series, maker, Tree(checkout), tmp_path / "out")) == len(NAMES)
