"""Commits the patch series one by one on ColossalAI's sources and checks the tree after each of them.

    python tests/upstream/verify_series.py                    the released sdist
    python tests/upstream/verify_series.py --upstream DIR     a checkout, or another unpacked sdist

After each commit: ``colossalai`` is imported from the tree; black, isort and autoflake leave the touched files as they
are; the commit's own tests pass where the fork cannot be imported; the contract holds with the overlay off, while an
import of the fork's code by anybody, or of anything of the fork by ColossalAI, is an error. Before the first commit the
report's reproduction shows the fault, after it the fix. The commits are made by ``git am`` from exported files.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
GATE = PROJECT / "colossalai_fork" / "gate"
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

REPRODUCTION = """
import tempfile
import torch
from colossalai.checkpoint_io import GeneralCheckpointIO

def optimizer_with_gradient():
    param = torch.nn.Parameter(torch.tensor([1.0]))
    param.grad = torch.tensor([1.0])
    return param, torch.optim.SGD([param], lr=0.1, momentum=0.9)

_, never_stepped = optimizer_with_gradient()
param, trained = optimizer_with_gradient()
trained.state[param]["momentum_buffer"] = torch.tensor([1.0])
with tempfile.TemporaryDirectory() as directory:
    GeneralCheckpointIO().save_optimizer(never_stepped, directory, shard=True)
    GeneralCheckpointIO().load_optimizer(trained, directory)
print(dict(trained.state[param]) if param in trained.state else {})
trained.step()
print(round(param.item(), 4))
"""


class Failure(Exception):
    """A check that did not hold."""


def run(command, cwd, path, quiet=True):
    """Run a command where only the given directories and the environment's packages can be imported.

    Args:
        command (list): the command line.
        cwd (pathlib.Path): where.
        path (list): directories for ``PYTHONPATH``.
        quiet (bool): whether to show its output only if it fails.

    Returns:
        str: what it printed, if quiet.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment.update(PYTHONPATH=os.pathsep.join(map(str, path)), PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} if quiet else {}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, **output)
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
    """The checks of one run.

    Args:
        scratch (pathlib.Path): an empty directory.
        upstream (pathlib.Path): ColossalAI's sources; they are not changed.
        steps (set[str]): which of the slow checks to do: ``contract``, ``tests``.
        only (str | None): name of the one patch to do them for; all if None.
    """

    def __init__(self, scratch, upstream, steps, only=None):
        from colossalai_fork.patchset import project
        from colossalai_fork.patchset.tree import FALLBACK_IDENTITY, Tree, git

        self.scratch, self.steps, self.only = scratch, steps, only
        self.series, self.source, self.upstream = project.series(), project.source(), Tree(upstream)
        (scratch / "tree").mkdir()
        self.root = self.upstream.copy(scratch / "tree")
        for key, value in zip(("user.name", "user.email"), FALLBACK_IDENTITY):
            git(self.root, "config", key, value, isolated=True)
        self.kit = make_kit(scratch / "kit", self.root)
        self.summary = []

    def all(self):
        """Do everything.

        Raises:
            Failure: at the first check that does not hold.
        """
        with self.step("reproduction on the unpatched tree"):
            self.expect_reproduction("{'momentum_buffer': tensor([1.])}\n0.81")
        with self.step("export, twice"):
            files = self.export()
        patches = [file for file in files if file.suffix == ".patch"]
        carried = {f"{patch.number:04d}": patch for patch in self.series.patches}
        for number, file in enumerate(patches, 1):
            self.verify(file, carried[file.name[:4]], last=number == len(patches))
        print("\n" + "\n".join(self.summary))

    def verify(self, file, patch, last):
        """Commit one patch and check the tree.

        Args:
            file (pathlib.Path): the exported patch.
            patch (series.Patch): the patch.
            last (bool): whether none follows, so that the contract is to be checked for all patches again.
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
            where = run(
                [sys.executable, "-W", "ignore", "-c", f"import {modules}; print(colossalai.__file__)"],
                self.scratch,
                [self.root],
            )
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
        with self.step("reproduction"):
            self.expect_reproduction("{}\n0.9")
        if self.only is not None:
            patches = [patch] if patch.name == self.only else []
        else:
            # The last patch must not break what the others mended.
            patches = self.series.patches[: patch.number] if last else [patch]
        if patches and "tests" in self.steps:
            with self.step("ColossalAI's own form of tests, without the fork", quiet=False):
                self.run_tests([name for each in patches for name in sorted(each.tests)])
        if patches and "contract" in self.steps:
            with self.step("contract without the overlay", quiet=False):
                self.run_contract([name for each in patches for name in each.contract])

    def run_tests(self, files):
        """Run exported tests where the fork cannot be imported."""
        options = ("-q", "-p", "upstream_on_cpu", "-p", "no:cacheprovider", "-W", "ignore")
        run([sys.executable, "-m", "pytest", *options, *files], self.root, [self.root, self.kit], quiet=False)

    def run_contract(self, names):
        """Run the kit's contract tests against the tree, with the fork's own code switched off."""
        files = [GATE / name for name in names]
        options = (
            "-q",
            "-p",
            "colossalai_fork.gate.plugin",
            "-p",
            "no:cacheprovider",
            "--overlay",
            "off",
            "-W",
            "ignore",
        )
        options += ("-n", "2") if importlib.util.find_spec("xdist") else ()
        path = [HERE / "forbid", self.root, PROJECT]
        run(
            [sys.executable, "-m", "pytest", "--rootdir", self.scratch, *options, *files],
            self.scratch,
            path,
            quiet=False,
        )

    def export(self):
        """Export the series two times and compare.

        Returns:
            list[pathlib.Path]: the files.
        """
        from colossalai_fork.patchset.export import export

        one, two = (export(self.series, self.source, self.upstream, self.scratch / name) for name in ("one", "two"))
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


def main():
    """Parse the command line and run the checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream", type=pathlib.Path, help="ColossalAI's sources; default: the released sdist")
    parser.add_argument(
        "--skip", action="append", default=[], choices=["contract", "tests"], help="leave a slow check out"
    )
    parser.add_argument("--only", metavar="NAME", help="do the slow checks for this patch alone")
    arguments = parser.parse_args()
    sys.path.insert(0, str(PROJECT))
    with tempfile.TemporaryDirectory(prefix="colossalai-series-") as name:
        scratch = pathlib.Path(name)
        upstream = arguments.upstream or fetch_sdist(scratch)
        try:
            Verification(scratch, upstream, {"contract", "tests"} - set(arguments.skip), arguments.only).all()
        except Failure as failure:
            sys.exit(f"\nFAILED: {failure}")
    print("the series holds")


if __name__ == "__main__":
    main()
