"""What is installed now, row by row of the table."""

import enum
import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Callable

from . import fingerprint
from .table import Replacement

ABSENT = object()


class State(str, enum.Enum):
    """What stands where the table wants our function."""

    ORIGINAL = "original"
    REPLACED = "replaced"
    ALREADY_FIXED = "already fixed"
    UNKNOWN = "unknown"
    MISSING = "missing"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Status:
    """One row of the table as it is installed now.

    Args:
        symbol (str): ``module:qualified name``.
        file (str): upstream's file, from the root of its source tree.
        state (State): ``original`` (a version we know; for an added symbol: not there, as it should be), ``replaced`` (ours,
            by the overlay), ``already fixed`` (ours, in upstream itself), ``unknown`` or ``missing``.
        detail (str): the version it was recognised as, or why it was not, with the lines in question.
        patch (str): the patch of the series that carries our function.
    """

    symbol: str
    file: str
    state: State
    detail: str
    patch: str


@dataclass(frozen=True)
class Place:
    """Where a row's function stands: what the overlay needs to change it.

    Args:
        owner (module | type | None): what has the attribute; None if it does not exist.
        attribute (str): its name there.
        present (object): what the owner's own dictionary holds now, or ``ABSENT``.
        ours (object): what ours holds, or ``ABSENT`` as long as upstream's owner does not exist.
    """

    owner: ModuleType | type | None
    attribute: str
    present: object
    ours: object


def find(module: ModuleType, qualified_name: str) -> tuple[ModuleType | type, str]:
    """Find the owner of a function.

    Args:
        module (module): where to start.
        qualified_name (str): for example ``GeneralCheckpointIO.load_sharded_optimizer``.

    Returns:
        tuple[module | type, str]: the owner and the attribute's name. The attribute itself need not exist.

    Raises:
        AttributeError: if an owner on the way does not exist.
    """
    *owners, attribute = qualified_name.split(".")
    for name in owners:
        module = getattr(module, name)
    return module, attribute


def look(row: Replacement, is_installed: Callable[[object, str], bool]) -> tuple[Status, Place]:
    """Find out what is installed for one row. Imports upstream's module and ours.

    Args:
        row (Replacement): the row.
        is_installed (Callable[[object, str], bool]): whether the overlay put in what an owner has under a name.

    Returns:
        tuple[Status, Place]: what it is, and where.
    """

    def status(state: State, detail: str = "") -> Status:
        return Status(row.symbol, row.file, state, detail, row.patch)

    try:
        owner, attribute = find(importlib.import_module(row.module), row.name)
    except Exception as error:  # An import of upstream's may fail with anything.
        return status(State.MISSING, f"{type(error).__name__}: {error}"), Place(None, "", ABSENT, ABSENT)
    # The dictionary and not getattr: an inherited method is not this class's own, and a static method is not its function.
    present = vars(owner).get(attribute, ABSENT)
    our_owner, our_attribute = find(importlib.import_module(row.our_module), row.our_name)
    place = Place(owner, attribute, present, vars(our_owner)[our_attribute])
    if is_installed(owner, attribute):
        return status(State.REPLACED), place
    return status(*_recognise(row, place)), place


def _is_ours(function: object, ours: object) -> bool:
    try:
        return fingerprint.source_of(function).is_same_code(fingerprint.source_of(ours))
    except fingerprint.SourceUnavailable:
        return False


def _recognise(row: Replacement, place: Place) -> tuple[State, str]:
    if place.present is ABSENT:
        if row.kind == "add":
            return State.ORIGINAL, "absent"
        if row.kind == "inherit" and _is_ours(getattr(place.owner, place.attribute, None), place.ours):
            return State.ALREADY_FIXED, "inherited"
        return State.MISSING, f"{row.module} has no {row.name}"
    try:
        source = fingerprint.source_of(place.present)
    except fingerprint.SourceUnavailable as error:
        return State.UNKNOWN, str(error)
    # The patch series names upstream's classes directly where our modules reach them through upstream's modules.
    if source.is_same_code(fingerprint.source_of(place.ours)):
        return State.ALREADY_FIXED, ""
    version = fingerprint.known_version(source, row.known)
    if version is None:
        return State.UNKNOWN, fingerprint.difference(source, row.known)
    return State.ORIGINAL, version
