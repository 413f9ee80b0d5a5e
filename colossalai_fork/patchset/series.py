"""The series as it lies in ``patches/``: the order of the patches, their titles and texts, and the tests that they
carry."""

import configparser
import dataclasses
import pathlib

from .errors import PatchError

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
        contract (list[str]): files of the gate whose cases hold once the patch is in.
        removes (list[tuple[str, str]]): file and qualified name of what it leaves without use and therefore takes out.
    """

    number: int
    name: str
    title: str
    message: str
    request: str
    issue: str
    tests: dict
    contract: list
    removes: list


@dataclasses.dataclass(frozen=True)
class Series:
    """The whole stack.

    Args:
        folder (pathlib.Path): where it lies.
        branch (str): name of the branch that ``apply`` makes unless told otherwise.
        date (str): the date that exported commits bear, so that two exports are equal.
        patches (list[Patch]): the patches in order.
    """

    folder: pathlib.Path
    branch: str
    date: str
    patches: list

    def read(self, name):
        """Read one of the series' text frames."""
        return _read(self.folder / name)

    def check_rows(self, rows):
        """Refuse a replacement table that names patches which the series does not have, or the other way round.

        Args:
            rows (list): the table.
        """
        in_table, in_series = {row.patch for row in rows}, {patch.name for patch in self.patches}
        if in_table - in_series:
            raise PatchError(
                f"the replacement table names patches that the series lacks: {sorted(in_table - in_series)}"
            )


def folder():
    """Find the series: inside the installed package, or at the root of the repository.

    Returns:
        pathlib.Path: the folder that holds ``series.ini``.
    """
    for candidate in (_HERE / "series", _HERE.parents[1] / "patches"):
        if (candidate / "series.ini").is_file():
            return candidate
    raise PatchError("this installation lacks the patch series (patches/series.ini)")


def read(where=None):
    """Read the series.

    Args:
        where (pathlib.Path | None): its folder; the project's own if None.

    Returns:
        Series: the patches with their texts.

    Raises:
        PatchError: if a text or a test is missing, or a title is not in upstream's form.
    """
    where = pathlib.Path(where) if where is not None else folder()
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(_read(where / "series.ini"), "series.ini")
    patches = []
    for name in parser.sections():
        if name != "series":
            patches.append(_patch(where, len(patches) + 1, name, parser[name]))
    return Series(where, parser["series"]["branch"], parser["series"]["date"], patches)


def _patch(where, number, name, section):
    title = section["title"]
    if not title.startswith("[checkpointio] ") or title != title.lower() or len(title) > 72:
        raise PatchError(f"patch {name}: the title must read '[checkpointio] …', lower case, in at most 72 characters")
    texts = _sections(_read(where / section["text"]), section["text"])
    tests = {}
    for line in section.get("tests", "").split():
        tests[f"tests/test_checkpoint_io/{line}"] = where / "tests" / line
        if not tests[f"tests/test_checkpoint_io/{line}"].is_file():
            raise PatchError(f"patch {name}: there is no test {line}")
    removes = [tuple(line.split(":")) for line in section.get("removes", "").split()]
    return Patch(
        number,
        name,
        title,
        texts[_MESSAGE],
        texts[_REQUEST],
        section["issue"],
        tests,
        section.get("contract", "").split(),
        removes,
    )


def _sections(text, name):
    message, separator, request = text.partition(f"{_REQUEST}\n")
    if not message.startswith(f"{_MESSAGE}\n") or not separator:
        raise PatchError(f"{name} needs the headings '{_MESSAGE}' and '{_REQUEST}', in this order")
    return {_MESSAGE: message[len(_MESSAGE) :].strip() + "\n", _REQUEST: request.strip() + "\n"}


def _read(file):
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise PatchError(f"the patch series lacks {file.name}: {error}") from error
