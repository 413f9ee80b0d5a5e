"""The series as it lies in ``patches/``: the order of the patches, their titles and texts, and the tests that they
carry."""

import configparser
import dataclasses
import pathlib

from . import points
from .errors import PatchError
from .points import Points

_HERE = pathlib.Path(__file__).resolve().parent
_MESSAGE, _REQUEST = "# Commit message", "# Pull request"


@dataclasses.dataclass(frozen=True)
class Patch:
    """One commit of the series.

    Args:
        number (int): its place, from 1.
        name (str): what the replacement table calls it.
        title (str): subject of the commit and title of its pull request.
        message (str): body of the commit message.
        request (str): what the pull request says about it, between the lines that upstream's template asks for.
        issue (str): how it refers to upstream's issue, for example ``closed #6549``.
        tests (dict[str, pathlib.Path]): templates by the file that they become upstream.
        classes (list[str]): the checkpoint IO classes that it changes, as ``colossalai-fork gate --classes`` takes them.
        removes (list[tuple[str, str, bool]]): file and qualified name of what it leaves without use and therefore takes
            out, and whether that must exist.
        needs (list[str] | None): names of the patches that must come before it; all earlier ones if None.
    """

    number: int
    name: str
    title: str
    message: str
    request: str
    issue: str
    tests: dict[str, pathlib.Path]
    classes: list[str]
    removes: list[tuple[str, str, bool]]
    needs: list[str] | None


@dataclasses.dataclass(frozen=True)
class Series:
    """The whole stack.

    Args:
        folder (pathlib.Path): where it lies.
        branch (str): name of the branch that ``apply`` makes unless told otherwise.
        patches (list[Patch]): the patches in order.
        points (points.Points): which contract points hold after each patch, as measured.
    """

    folder: pathlib.Path
    branch: str
    patches: list[Patch]
    points: Points

    def read(self, name: str) -> str:
        """Read one of the series' text frames, its own or the one for all series."""
        own = self.folder / name
        return _read(own if own.is_file() else self.folder.parent / name)

    def needed(self, name: str) -> set[str]:
        """Collect a patch and those that it needs.

        Args:
            name (str): the patch.

        Returns:
            set[str]: names.
        """
        found, pending = set(), [name]
        while pending:
            current = pending.pop()
            patch = next(patch for patch in self.patches if patch.name == current)
            found.add(current)
            earlier = [each.name for each in self.patches[: patch.number - 1]]
            pending += [each for each in (earlier if patch.needs is None else patch.needs) if each not in found]
        return found


def folder(name: str) -> pathlib.Path:
    """Find a series: inside the installed package, or at the root of the repository.

    Args:
        name (str): its name.

    Returns:
        pathlib.Path: the folder that holds its ``series.ini``.
    """
    for candidate in (_HERE / "series" / name, _HERE.parents[1] / "patches" / name):
        if (candidate / "series.ini").is_file():
            return candidate
    raise PatchError(f"this installation lacks the patch series {name}")


def read(where: pathlib.Path) -> Series:
    """Read a series.

    Args:
        where (pathlib.Path): its folder.

    Returns:
        Series: the patches with their texts.

    Raises:
        PatchError: if a text or a test is missing, or a title is not in upstream's form.
    """
    where = pathlib.Path(where)
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(_read(where / "series.ini"), "series.ini")
    patches = []
    for name in parser.sections():
        if name != "series":
            patches.append(_patch(where, len(patches) + 1, name, parser[name]))
    return Series(where, parser["series"]["branch"], patches, points.read(where / "points.json"))


def _patch(where: pathlib.Path, number: int, name: str, section: configparser.SectionProxy) -> Patch:
    title = section["title"]
    if not title.startswith("[checkpointio] ") or title != title.lower() or len(title) > 72:
        raise PatchError(f"patch {name}: the title must read '[checkpointio] …', lower case, in at most 72 characters")
    texts = _sections(_read(where / section["text"]), section["text"])
    tests = {}
    for line in section.get("tests", "").split():
        # A test of another series holds here as well.
        found = [where / "tests" / line, *sorted(where.parent.glob(f"*/tests/{line}"))]
        tests[f"tests/test_checkpoint_io/{line}"] = next((file for file in found if file.is_file()), found[0])
        if not tests[f"tests/test_checkpoint_io/{line}"].is_file():
            raise PatchError(f"patch {name}: there is no test {line}")
    removes = [(*line.rstrip("?").split(":"), not line.endswith("?")) for line in section.get("removes", "").split()]
    return Patch(
        number,
        name,
        title,
        texts[_MESSAGE],
        texts[_REQUEST],
        section["issue"],
        tests,
        section.get("classes", "").split(),
        removes,
        section["needs"].split() if "needs" in section else None,
    )


def _sections(text: str, name: str) -> dict[str, str]:
    message, separator, request = text.partition(f"{_REQUEST}\n")
    if not message.startswith(f"{_MESSAGE}\n") or not separator:
        raise PatchError(f"{name} needs the headings '{_MESSAGE}' and '{_REQUEST}', in this order")
    return {_MESSAGE: message[len(_MESSAGE) :].strip() + "\n", _REQUEST: request.strip() + "\n"}


def _read(file: pathlib.Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise PatchError(f"the patch series lacks {file.name}: {error}") from error
