"""Commits the patch series one by one on ColossalAI's sources and checks the tree after each of them.

    python tests/upstream/verify_series.py                     both series, on the released sdist
    python tests/upstream/verify_series.py --upstream DIR      on a checkout, or another unpacked sdist
    python tests/upstream/verify_series.py --points check      and has the gate judge the tree after each patch (an hour)
    python tests/upstream/verify_series.py --existing          and ColossalAI's own checkpoint tests (needs a checkout)

After each commit: ``colossalai`` is imported from the tree; black, isort and autoflake leave the touched files as they
are; the commit's own tests pass on a plain CPU, where nothing stands in for an accelerator and the fork cannot be
imported. Before the first commit the report's reproduction shows the fault, and the fix from the commit on that closes
the report. The commits are made by ``git am`` from exported files.

The points that a patch's text claims are those of ``points.json``: a point that is claimed and violated fails here, and
so does one that holds and is not claimed.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from reproduction import REPRODUCTION  # noqa: E402

GATE = PROJECT / "colossalai_fork" / "gate"
# What stands in for an accelerator in ColossalAI's own tests.
STAND_INS = ("stand_in.py", "stand_in_gemini.py", "replacements.py")

# As ColossalAI's .pre-commit-config.yaml has them.
LINTERS = (
    ("autoflake", "--check-diff", "--quiet", "--remove-unused-variables", "--remove-all-unused-imports")
    + ("--ignore-init-module-imports",),
    ("isort", "--profile", "black", "--check-only", "--diff"),
    ("black", "--check", "--diff", "--quiet", "--line-length=120", "--target-version=py37", "--target-version=py38")
    + ("--target-version=py39", "--target-version=py310"),
)

# What its .isort.cfg adds, for an sdist, which lacks that file.
ISORT_SETTINGS = ("--line-length=120", "--honor-noqa")

# From this patch on, the report is closed.
CLOSES_THE_REPORT = {"fix": "reset-general", "contract": "replace-optimizer-state"}

CONTRIBUTOR = {"NAME": "A Contributor", "EMAIL": "a.contributor@example.com"}


class Failure(Exception):
    """A check that did not hold."""


def run(command, cwd, path, quiet=True, limit=None):
    """Run a command where only the given directories and the environment's packages can be imported.

    Args:
        command (list): the command line.
        cwd (pathlib.Path): where.
        path (list): directories for ``PYTHONPATH``.
        quiet (bool): whether to show its output only if it fails.
        limit (float | None): seconds after which it has failed.

    Returns:
        str: what it printed, if quiet.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment.update(PYTHONPATH=os.pathsep.join(map(str, path)), PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} if quiet else {}
    try:
        done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, timeout=limit, **output)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{' '.join(map(str, command))} took more than {limit} s") from error
    if done.returncode:
        raise Failure(f"{' '.join(map(str, command))}\n{done.stdout or ''}")
    return done.stdout


def fetch_sdist(folder):
    """Download the released sources.

    Args:
        folder (pathlib.Path): where to put them.

    Returns:
        pathlib.Path: root of the unpacked tree.
    """
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", folder)
    run([sys.executable, "-m", "pip", "download", *options, "colossalai==0.5.0"], folder, [])
    (archive,) = folder.glob("colossalai-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def make_kit(folder, tree):
    """Gather what ColossalAI's tests need on a CPU, without the fork.

    Args:
        folder (pathlib.Path): an empty directory.
        tree (pathlib.Path): ColossalAI's sources.

    Returns:
        pathlib.Path: the directory, to be put on the path.
    """
    package = folder / "stand_ins"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in STAND_INS:
        shutil.copy(GATE / "cpu" / name, package)
    shutil.copy(HERE / "on_cpu" / "upstream_on_cpu.py", folder)
    if not (tree / "tests" / "test_checkpoint_io" / "utils.py").exists():
        shutil.copy(HERE / "shared_tempdir" / "utils.py", folder)
    return folder


class Verification:
    """The checks of one series.

    Args:
        scratch (pathlib.Path): an empty directory.
        upstream (pathlib.Path): ColossalAI's sources; they are not changed.
        name (str): the series.
        arguments (argparse.Namespace): the command line.
    """

    def __init__(self, scratch, upstream, name, arguments):
        from colossalai_fork.patchset import project
        from colossalai_fork.patchset.tree import Tree, git

        self.scratch, self.name, self.arguments = scratch, name, arguments
        self.series, self.upstream = project.series(name), Tree(upstream)
        self.maker = project.maker(self.series)
        self.root = self.upstream.copy(scratch / "tree")
        for key, value in CONTRIBUTOR.items():
            git(self.root, "config", f"user.{key.lower()}", value, isolated=True)
        self.kit = make_kit(scratch / "kit", self.root)
        # Without tests of its own, a released sdist lacks what the exported ones import.
        self.test_path = [self.root] + ([] if (self.root / "tests" / "conftest.py").exists() else [self.kit])
        self.measured, self.summary = {}, []

    def all(self):
        """Do everything.

        Raises:
            Failure: at the first check that does not hold.
        """
        print(f"\nseries {self.name}", flush=True)
        with self.step("reproduction on the unpatched tree"):
            self.expect_reproduction("{'momentum_buffer': tensor([1.])}\n0.81")
        with self.step("export, twice"):
            files = self.export()
        if self.arguments.points == "write":
            self.measured[""] = self.judge(dict.fromkeys(name for each in self.series.patches for name in each.classes))
        before = self.existing() if self.arguments.existing else None
        patches = [file for file in files if file.suffix == ".patch"]
        for file, patch in zip(patches, self.series.patches, strict=True):
            self.verify(file, patch)
        if before is not None:
            self.compare(before, self.existing())
        if self.arguments.points == "write":
            self.keep_points()
        print("\n" + "\n".join(self.summary))

    def verify(self, file, patch):
        """Commit one patch and check the tree.

        Args:
            file (pathlib.Path): the exported patch.
            patch (series.Patch): the patch.
        """
        from colossalai_fork.patchset.tree import git

        print(f"\n{patch.title}", flush=True)
        with self.step("git am"):
            git(self.root, "am", "--quiet", "--keep-non-patch", str(file), isolated=True)
            subject = git(self.root, "log", "-1", "--format=%s", isolated=True).strip()
            self.expect(subject == patch.title, f"the commit is called {subject!r}")
        touched = git(self.root, "diff", "--name-only", "HEAD~", "HEAD", isolated=True).split()
        self.summary.append(f"{patch.name}: {self.size()}")
        with self.step("import"):
            modules = "colossalai, colossalai.booster, colossalai.checkpoint_io, colossalai.zero"
            code = f"import {modules}; print(colossalai.__file__)"
            where = run([sys.executable, "-W", "ignore", "-c", code], self.scratch, [self.root])
            self.expect(str(self.root) in where, f"colossalai came from {where}")
        with self.step("black, isort, autoflake"):
            settings = () if (self.root / ".isort.cfg").exists() else ISORT_SETTINGS
            for linter in LINTERS:
                options = settings if linter[0] == "isort" else ()
                run([sys.executable, "-m", *linter, *options, *touched], self.root, [])
        with self.step("no mention of the fork"):
            for name in touched:
                text = (self.root / name).read_text(encoding="utf-8").lower()
                self.expect("colossalai_fork" not in text and "colossalai-fork" not in text, f"{name} names the fork")
        first = next(each for each in self.series.patches if each.name == CLOSES_THE_REPORT[self.name])
        if patch.number >= first.number:
            with self.step("reproduction"):
                self.expect_reproduction("{}\n0.9")
        if self.arguments.only in (None, patch.name):
            with self.step("its tests", quiet=False):
                self.run_tests(sorted(patch.tests))
            if self.arguments.points and patch.classes:
                self.check_points(patch)

    def run_tests(self, files):
        """Run exported tests on a plain CPU, where ColossalAI cannot import the fork."""
        options = ("-q", "-p", "no:cacheprovider", "-W", "ignore")
        path = [HERE / "forbid", *self.test_path]
        run([sys.executable, "-m", "pytest", *options, *files], self.root, path, quiet=False)

    def existing(self):
        """Run the checkpoint tests that ColossalAI has, with what stands in for an accelerator.

        Returns:
            dict[str, str]: outcome by test.
        """
        from colossalai_fork.patchset.tree import git

        folder = "tests/test_checkpoint_io"
        own = {file for each in self.series.patches for file in each.tests}
        files = [file for file in git(self.root, "ls-files", f"{folder}/test_*.py").split() if file not in own]
        report = self.scratch / "existing.xml"
        found = {}
        for file in files:
            options = ("-q", "-p", "upstream_on_cpu", "-p", "no:cacheprovider", "-W", "ignore", f"--junit-xml={report}")
            with self.step(file), contextlib.suppress(Failure):
                run([sys.executable, "-m", "pytest", *options, file], self.root, [self.root, self.kit], limit=900)
            for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
                outcome = next((each.tag for each in case if each.tag in ("failure", "error", "skipped")), "passed")
                found[f"{case.get('classname')}::{case.get('name')}"] = outcome
            report.unlink(missing_ok=True)
        return found

    def compare(self, before, after):
        """List what ColossalAI's own tests say, and refuse a worse outcome."""
        for name in sorted(before.keys() | after.keys()):
            print(f"  {before.get(name)} → {after.get(name)}  {name}")
        worse = [name for name, outcome in before.items() if outcome == "passed" and after.get(name) != "passed"]
        self.expect(not worse, f"these passed without the series: {', '.join(worse)}")

    def judge(self, classes):
        """Have the gate judge the tree as it is, with the overlay off and the fork's code out of reach.

        Returns:
            dict: held and all cases by class and point.
        """
        from colossalai_fork.patchset import gate, points

        with self.step(f"the gate on {', '.join(classes)}"):
            return points.count(gate.judge(self.root, classes, [HERE / "forbid"]))

    def check_points(self, patch):
        """Compare which points hold with those that the text of a patch claims."""
        found = self.measured[patch.name] = self.judge(patch.classes)
        claimed = self.series.points.measured.get(patch.name, {})
        if self.arguments.points == "check":
            ours, theirs = ({name: holding(each) for name, each in counts.items()} for counts in (claimed, found))
            self.expect(ours == theirs, f"{patch.name} claims that these points hold: {ours}; these do: {theirs}")

    def keep_points(self):
        """Write what the gate has said beside the series."""
        from colossalai_fork.patchset import points

        measured = {**self.series.points.measured, **self.measured}
        order = ["", *(patch.name for patch in self.series.patches)]
        points.write(self.series.folder / "points.json", {name: measured[name] for name in order if name in measured})

    def export(self):
        """Export the series two times and compare.

        Returns:
            list[pathlib.Path]: the files.
        """
        from colossalai_fork.patchset.export import export

        one, two = (export(self.series, self.maker, self.upstream, self.scratch / name) for name in ("one", "two"))
        for first, second in zip(one, two, strict=True):
            self.expect(first.name == second.name, "two exports have other names")
            self.expect(first.read_bytes() == second.read_bytes(), f"{first.name} differs between two exports")
        return one

    def size(self):
        """Count the lines of the latest commit."""
        from colossalai_fork.patchset.export import size_line, sizes
        from colossalai_fork.patchset.stack import Commit

        return size_line(sizes(self.root, Commit(None, "HEAD", [])))

    def expect_reproduction(self, expected):
        """Run the report's script without the fork and compare what it prints."""
        printed = run([sys.executable, "-W", "ignore", "-c", REPRODUCTION], self.scratch, [self.root])
        self.expect(printed.strip().endswith(expected), f"the reproduction printed\n{printed}")

    def expect(self, condition, text):
        """Fail unless a condition holds."""
        if not condition:
            raise Failure(text)

    @contextlib.contextmanager
    def step(self, name, quiet=True):
        """Say what is being done, and how long it took."""
        print(f"  {name} …", end="\n" if not quiet else "", flush=True)
        start = time.monotonic()
        yield
        print(f" {'  ' + name if not quiet else ''} {time.monotonic() - start:.0f} s", flush=True)


def holding(counts):
    """List the points of which every case holds."""
    return [point for point, (held, of) in counts.items() if held == of]


def main():
    """Parse the command line and run the checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream", type=pathlib.Path, help="ColossalAI's sources; default: the released sdist")
    parser.add_argument("--series", choices=["fix", "contract"], help="one series; default: both")
    parser.add_argument("--only", metavar="NAME", help="test this patch alone")
    parser.add_argument(
        "--points", choices=["check", "write"], help="have the gate compare, or measure, which contract points hold"
    )
    parser.add_argument(
        "--existing", action="store_true", help="run ColossalAI's own checkpoint tests before and after"
    )
    arguments = parser.parse_args()
    sys.path.insert(0, str(PROJECT))
    os.environ.update(
        {f"GIT_{role}_{key}": each for role in ("AUTHOR", "COMMITTER") for key, each in CONTRIBUTOR.items()}
    )
    with tempfile.TemporaryDirectory(prefix="colossalai-series-") as name:
        scratch = pathlib.Path(name)
        upstream = arguments.upstream or fetch_sdist(scratch)
        try:
            for series in [arguments.series] if arguments.series else ["fix", "contract"]:
                (scratch / series).mkdir()
                Verification(scratch / series, upstream, series, arguments).all()
        except Failure as failure:
            sys.exit(f"\nFAILED: {failure}")
    print("the series hold")


if __name__ == "__main__":
    main()
