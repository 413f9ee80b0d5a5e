"""What people read in this project, docstrings, comments and messages, is in its own words."""

import importlib.util
import io
import pathlib
import tokenize

import pytest
from unmodified import IS_FIXED

PROJECT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("colossalai_fork", "patches", "benchmarks", "tests", "examples")
PACKAGES = ("colossalai", "torch/optim", "torch/distributed", "torch/serialization.py")
# Shorter lines are alike by chance.
SHORTEST = 40


def prose(text):
    """Collect the lines of strings and comments that are long enough to be somebody's own.

    Args:
        text (str): Python source.

    Returns:
        dict: line number of each line.
    """
    lines = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                line = line.strip("\"'# \t")
                if len(line) >= SHORTEST and " " in line:
                    lines.setdefault(line, number)
    return lines


def sources(root):
    return [root] if root.is_file() else sorted(root.rglob("*.py"))


@pytest.fixture(scope="module")
def theirs():
    """Lines of the installed packages, by the file that has them."""
    lines = {}
    for name in PACKAGES:
        package, _, rest = name.partition("/")
        found = importlib.util.find_spec(package)
        if found is None:
            pytest.skip(f"needs {package}")
        root = pathlib.Path(found.submodule_search_locations[0])
        if package == "colossalai" and IS_FIXED:
            pytest.skip("the installed ColossalAI has this project's code")
        for file in sources(root / rest):
            lines.update(dict.fromkeys(prose(file.read_text(encoding="utf-8")), file.relative_to(root.parent)))
    return lines


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_copied(theirs, folder):
    copied = [
        f"{file.relative_to(PROJECT)}:{number} stands in {theirs[line]}: {line}"
        for file in sources(PROJECT / folder)
        for line, number in prose(file.read_text(encoding="utf-8")).items()
        if line in theirs
    ]
    assert not copied, "\n".join(copied)


def test_a_copy_is_noticed(theirs):
    line = next(iter(theirs))
    assert set(prose(f'x = """\n    {line}\n"""\n')) & set(theirs)
