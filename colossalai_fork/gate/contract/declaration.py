"""Mistakes in what an author says of a class: with them there would be a judgement, but of something else."""

from __future__ import annotations

import difflib
import inspect
from typing import TYPE_CHECKING, Iterable

from ..plugin import ESSENTIAL
from ..workers.outcomes import KitFailure
from .checkpoint_files import LAYOUTS

if TYPE_CHECKING:
    from .base import ContractBase

#: What ``Booster`` and ``CheckpointIO`` call.
CALLED = (
    "load_optimizer",
    "save_optimizer",
    "load_sharded_optimizer",
    "load_unsharded_optimizer",
    "save_sharded_optimizer",
    "save_unsharded_optimizer",
)


def mistakes(cls: type[ContractBase], base: type[ContractBase]) -> list[str]:
    """Look for mistakes in a test class, before any case of it runs.

    Args:
        cls (type): the class.
        base (type): :class:`~.base.ContractBase`.

    Returns:
        List[str]: one line for each.
    """
    found = [
        f"{name}() is not there: it {makes}"
        for name, makes in (
            ("checkpoint_io", "makes the checkpoint IO under test"),
            ("build", "makes a model and its optimizer"),
        )
        if getattr(cls, name) is getattr(base, name) and (name != "build" or hasattr(cls, "test_full_checkpoint"))
    ]
    if not isinstance(cls.world_size, int) or isinstance(cls.world_size, bool) or cls.world_size < 1:
        found.append(f"world_size is {cls.world_size!r}, and must be a number of processes")
    if cls.device not in ("cpu", "cuda"):
        found.append(f"device is {cls.device!r}, and must be 'cpu' or 'cuda'")
    found += _mistakes_in_layouts(cls, base)
    found += _misspelt(cls, base)
    for name, reason in dict(cls.not_applicable).items():
        if not hasattr(cls, name):
            found.append(f"not_applicable names {name}, which is no case{_perhaps(name, dir(cls))}")
        elif name in ESSENTIAL:
            found.append(f"not_applicable names {name}, which every class has to hold")
        elif not isinstance(reason, str) or not reason.strip():
            found.append(f"not_applicable gives no reason for {name}")
    return [f"{cls.__name__}: {line}" for line in found]


def _mistakes_in_layouts(cls: type[ContractBase], base: type[ContractBase]) -> list[str]:
    layouts = cls.layouts
    if not isinstance(layouts, (tuple, list)) or not all(isinstance(each, str) for each in layouts):
        return [f"layouts is {layouts!r}, and must be a tuple of names"]
    if not layouts:
        return ["layouts is empty, so no checkpoint would ever be loaded"]
    unknown = [each for each in layouts if each not in LAYOUTS]
    if cls.files is base.files:
        return [
            f"layouts names {each!r}, which is none of {', '.join(LAYOUTS)}{_perhaps(each, LAYOUTS)}; "
            "a class with a format of its own overrides files()"
            for each in unknown
        ]
    return [
        f"layouts names {each!r}, which must end with -sharded (a directory) or -one-file"
        for each in unknown
        if not each.endswith(("-sharded", "-one-file"))
    ]


def _misspelt(cls: type[ContractBase], base: type[ContractBase]) -> list[str]:
    known = [name for name in dir(base) if not name.startswith("_")]
    lines = []
    for owner in cls.__mro__:
        if owner.__module__.startswith(__name__.rpartition(".contract.")[0]):
            continue
        for name in vars(owner):
            if not name.startswith(("_", "test_")) and name not in known:
                near = difflib.get_close_matches(name, known, 1, 0.85)
                if near:
                    lines.append(f"{name} means nothing to the contract; did you mean {near[0]}?")
    return lines


def _perhaps(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def check_class(contract: ContractBase) -> None:
    """Make sure that what a configuration makes is the class that it names, and that it can be called.

    Args:
        contract (ContractBase): the configuration, on a worker.

    Raises:
        KitFailure: if not.
    """
    where = f"{type(contract).__name__}.checkpoint_io()"
    try:
        made = contract.checkpoint_io()
    except Exception as error:
        raise KitFailure(f"{where} failed: {type(error).__name__}: {error}") from error
    cls = type(made)
    if cls.__name__ != contract.class_under_test:
        raise KitFailure(
            f"{where} made a {cls.__name__}, but class_under_test is {contract.class_under_test!r}: "
            "override checkpoint_io() to make that class, or name the one that it makes"
        )
    lines = wrong_signatures(cls)
    if lines:
        raise KitFailure("\n".join(lines))


def wrong_signatures(cls: type) -> list[str]:
    """Compare the methods of a class with those that ColossalAI calls.

    Args:
        cls (type): a checkpoint IO class.

    Returns:
        List[str]: a line for each method that cannot be called as ColossalAI calls it.
    """
    from colossalai.checkpoint_io import CheckpointIO

    lines = []
    for name in CALLED:
        method = getattr(cls, name, None)
        if method is None:
            if name in ("load_optimizer", "save_optimizer"):
                lines.append(f"{cls.__name__} has no {name}(), which Booster calls")
            continue
        calls = inspect.signature(getattr(CheckpointIO, name))
        try:
            own = inspect.signature(method)
            # What has no default is passed by position, whatever a class calls it, and the rest by name.
            parameters = list(calls.parameters.values())
            required = [None for each in parameters if each.default is each.empty]
            own.bind(*required, **{each.name: each.default for each in parameters if each.default is not each.empty})
        except TypeError as error:
            lines.append(
                f"{cls.__name__}.{name}{own} has a wrong signature ({error}): ColossalAI calls it as {name}{calls}"
            )
    return lines
