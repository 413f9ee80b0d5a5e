"""Puts our functions into the installed ColossalAI, and takes them out."""

from __future__ import annotations

import os
import sys
import threading
import types
import warnings
from dataclasses import dataclass
from typing import Iterable

from .inspection import ABSENT, Place, State, Status, look
from .table import REPLACEMENTS, Replacement

# What loading asks the environment, so that it does not matter whose copy of the code is in ColossalAI. Not imported from
# there, because that takes seconds; a test compares them.
VERIFY_VARIABLE = "COLOSSALAI_VERIFY_CHECKPOINT"


class OverlayError(RuntimeError):
    """ColossalAI is not as we know it, so nothing was changed.

    Args:
        problems (list[Status]): the rows that are unknown or missing.
    """

    def __init__(self, problems: list[Status]) -> None:
        self.problems = problems
        texts = [f"{problem.symbol} is {problem.state}\n{problem.detail}" for problem in problems]
        super().__init__(
            "nothing was changed: the installed ColossalAI has functions that this release does not know.\n\n"
            + "\n\n".join(texts)
        )


@dataclass(frozen=True)
class _Change:
    owner: types.ModuleType | type
    attribute: str
    original: object
    installed: object

    def is_in_place(self) -> bool:
        return vars(self.owner).get(self.attribute, ABSENT) is self.installed

    def make(self) -> None:
        setattr(self.owner, self.attribute, self.installed)

    def undo(self) -> None:
        if self.original is ABSENT:
            delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, self.original)


class Handle:
    """One request for the overlay. It stays as long as somebody holds it; as a context manager, until the block ends."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def revert(self) -> None:
        """Give this request up. The last one takes the overlay out. Calling it twice does no harm."""
        self._overlay.release(self)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.revert()


class Overlay:
    """The functions of one table, put in or taken out.

    Args:
        table (Iterable[Replacement]): the rows.
    """

    def __init__(self, table: Iterable[Replacement]) -> None:
        self._table = tuple(table)
        self._our_packages = {row.our_module.partition(".")[0] for row in self._table}
        self._lock = threading.RLock()
        self._changes = {}
        self._handles = set()
        self._verifying = set()
        self._variable_before = None

    def apply(self, verify: str | None = None) -> Handle:
        """Put in what is not in yet. See :func:`apply`."""
        if verify not in (None, "full"):
            raise ValueError(f'verify must be None or "full", found {verify!r}')
        with self._lock:
            found = [look(row, self._is_installed) for row in self._table]
            problems = [status for status, _ in found if status.state in (State.UNKNOWN, State.MISSING)]
            if problems:
                raise OverlayError(problems)
            before = dict(self._changes)
            try:
                for status, place in found:
                    if status.state is State.ORIGINAL:
                        self._install(place)
            except BaseException:
                self._undo(key for key in self._changes if self._changes[key] is not before.get(key))
                self._changes = before
                raise
            handle = Handle(self)
            self._handles.add(handle)
            if verify is not None:
                self._verify_from_now_on(handle, verify)
            return handle

    def _verify_from_now_on(self, handle: Handle, verify: str) -> None:
        if not self._verifying:
            self._variable_before = os.environ.get(VERIFY_VARIABLE)
        self._verifying.add(handle)
        os.environ[VERIFY_VARIABLE] = verify

    def _verify_no_longer(self, handles: set[Handle]) -> None:
        if self._verifying and self._verifying <= handles:
            if self._variable_before is None:
                os.environ.pop(VERIFY_VARIABLE, None)
            else:
                os.environ[VERIFY_VARIABLE] = self._variable_before
        self._verifying -= handles

    def release(self, handle: Handle) -> None:
        """Give up one handle; the last one takes everything out."""
        with self._lock:
            if handle in self._handles:
                self._handles.remove(handle)
                self._verify_no_longer({handle})
                if not self._handles:
                    self.revert()

    def revert(self) -> None:
        """Take everything out. See :func:`revert`."""
        with self._lock:
            self._verify_no_longer(set(self._handles))
            self._handles.clear()
            self._restore_late_imports()
            displaced = self._undo(self._changes)
            self._changes = {}
        if displaced:
            warnings.warn(
                f"left alone, because somebody changed them after apply(): {', '.join(displaced)}",
                RuntimeWarning,
                stacklevel=3,
            )

    def status(self) -> list[Status]:
        """Tell what is installed. See :func:`status`."""
        with self._lock:
            return [look(row, self._is_installed)[0] for row in self._table]

    def _is_installed(self, owner: object, attribute: str) -> bool:
        change = self._changes.get((id(owner), attribute))
        return change is not None and change.is_in_place()

    def _install(self, place: Place) -> None:
        if not isinstance(place.owner, types.ModuleType):
            self._make(place.owner, place.attribute, place.present, place.ours)
            return
        installed = _copy(place.ours)
        if place.present is ABSENT:
            self._make(place.owner, place.attribute, ABSENT, installed)
            return
        for module, attribute in self._holders(place.present):
            self._make(module, attribute, place.present, installed)

    def _make(self, owner: types.ModuleType | type, attribute: str, original: object, installed: object) -> None:
        change = _Change(owner, attribute, original, installed)
        self._changes[id(owner), attribute] = change
        change.make()

    def _undo(self, keys: Iterable[tuple[int, str]]) -> list[str]:
        displaced = []
        for key in reversed(list(keys)):
            change = self._changes[key]
            if change.is_in_place():
                change.undo()
            else:
                displaced.append(f"{change.owner.__name__}.{change.attribute}")
        return displaced

    def _restore_late_imports(self) -> None:
        """Put the original into modules that imported the name from upstream while the overlay was on."""
        for change in list(self._changes.values()):
            if isinstance(change.owner, types.ModuleType) and change.original is not ABSENT:
                for module, attribute in self._holders(change.installed):
                    if (id(module), attribute) not in self._changes:
                        setattr(module, attribute, change.original)

    def _holders(self, value: object) -> list[tuple[types.ModuleType, str]]:
        """List the modules, ours left out, that hold this very object, and under which names."""
        return [
            (module, attribute)
            for name, module in list(sys.modules.items())
            if isinstance(module, types.ModuleType) and name.partition(".")[0] not in self._our_packages
            # Not getattr, which would make lazy modules import things.
            for attribute, held in list(vars(module).items())
            if held is value
        ]


def _copy(function: object) -> object:
    """Copy a function, so that what was put into upstream's modules differs from what others imported from us on purpose."""
    if not isinstance(function, types.FunctionType):
        return function
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    copy.__qualname__ = function.__qualname__
    copy.__module__ = function.__module__
    copy.__doc__ = function.__doc__
    copy.__dict__.update(function.__dict__)
    return copy


_overlay = Overlay(REPLACEMENTS)


def apply(verify: str | None = None) -> Handle:
    """Put the corrected optimizer loaders into the installed ColossalAI.

    To be called on every rank, before or after ``colossalai.booster`` is imported; it imports what it changes. Methods are
    replaced on ColossalAI's own classes, functions in every module that has them. Before anything changes, each function is
    compared with the versions we know. What ColossalAI already has from us stays. Calling it again changes nothing more.

    Args:
        verify (str, optional): "full" if loading shall read all bytes of a checkpoint's files, and compare them with the
            checksums in the files and in their manifest, before anything changes. The same as the environment variable
            ``COLOSSALAI_VERIFY_CHECKPOINT=full``, which this sets until the overlay is taken out.

    Returns:
        Handle: takes the overlay out again with ``revert()`` or at the end of a ``with`` block, unless other handles are held.

    Raises:
        OverlayError: if a function is not one that we know. Its text shows the lines in question; nothing was changed.
        ValueError: if ``verify`` is anything else. Nothing was changed.
    """
    return _overlay.apply(verify)


def revert() -> None:
    """Take the overlay out, whoever asked for it, and restore the very objects that were there. Does nothing if it is not in.

    What somebody else put over ours in the meantime is left alone, with a ``RuntimeWarning``.
    """
    _overlay.revert()


def status() -> list[Status]:
    """Tell which functions are ColossalAI's and which are ours. Imports colossalai; changes nothing.

    Returns:
        list[Status]: one for each row of the table: symbol, file, state, detail, patch.
    """
    return _overlay.status()
