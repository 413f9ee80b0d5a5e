"""Contract point 4, for saving: ended at any file operation, a directory holds the old checkpoint or the new one."""

import builtins
import contextlib
import os
from typing import Any, Callable, Iterator

import torch

from ..base import case
from ..comparison import differences, look_at
from ..subjects import Subject
from .own_files import SIZES, OwnFilesCases
from .unmodified_files import UnmodifiedFilesCases

#: What changes files, as upstream's savers and ours call it.
OPERATIONS = [
    *((os, name) for name in ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "fsync", "open")),
    (builtins, "open"),
    (torch, "save"),
]


class InterruptedSavingCases(OwnFilesCases):
    """Saving into a directory that holds a checkpoint already."""

    unmodified = UnmodifiedFilesCases.unmodified

    def _holds(self, subject: Subject, path: str) -> str | dict[str, Any]:
        error = self.load(subject, path)
        failures = [text for text in self.everyone(None if error is None else f"{error}") if text]
        return failures[0] if failures else look_at(subject.inner)

    @case(4, rows=(21,), deadline=180.0)
    def test_ended_while_saving_over_an_earlier_save(self) -> None:
        earlier, source = self.trained(1), self.trained(3, self.recipe().with_rates(3), steps=3)
        subject = self.trained(2)
        path = self.save(earlier, size_per_shard=SIZES["many shards"])
        self.everyone(None)
        with ended_at_each_operation(path, os.path.join(self.directory, f"of-rank-{self.rank}")) as directories:
            self.save(source, size_per_shard=SIZES["many shards"])
        directories = sum(self.everyone(directories), [])
        old = self._holds(subject, directories[0])
        new = self._holds(subject, path)
        self.verdict(["both saves hold the same"] if not differences(old, new, "") else [])
        problems = []
        for directory in directories[1:]:
            found = self._holds(subject, directory)
            if isinstance(found, str):
                problems.append(f"{os.path.basename(directory)} cannot be loaded: {found}")
            elif differences(old, found, "") and differences(new, found, ""):
                problems.append(f"{os.path.basename(directory)} holds a mixture: {differences(new, found, '')}")
        self.verdict(problems[:3])

    @case(4, rows=(21,), deadline=120.0)
    def test_unmodified_colossalai_loads_a_later_save(self) -> None:
        earlier, source = self.trained(1), self.trained(3, self.recipe().with_rates(3), steps=3)
        first = self.save(source, "first", size_per_shard=SIZES["many shards"])
        many, one = SIZES["many shards"], SIZES["one shard"]
        for each, size in ((earlier, many), (source, one), (earlier, many), (source, many)):
            later = self.save(each, "later", size_per_shard=size)
        self.everyone(None)
        subjects = self.build(2), self.build(2)
        with self.unmodified():
            errors = [self.load(subject, path) for subject, path in zip(subjects, (first, later))]
        loads = not any(self.everyone(errors[0] is not None))
        self.require(loads, "unmodified ColossalAI does not even load what is saved once")
        problems = [f"{type(error).__name__}: {error}" for error in errors if error is not None]
        self.verdict(problems or differences(*(look_at(subject.inner) for subject in subjects), ""))


@contextlib.contextmanager
def ended_at_each_operation(path: str, destination: str) -> Iterator[list[str]]:
    """Copy a directory before each operation on its files: what a process that ends there leaves.

    Args:
        path (str): the directory.
        destination (str): where to put the copies.

    Yields:
        List[str]: the copies, of which the first is the directory as it is now; those that equal the one before are left
            out.
    """
    copies, state = [], {"busy": False, "content": None}

    def take(operation: str) -> None:
        if state["busy"]:
            return
        state["busy"] = True
        try:
            content = content_of(path)
            if content != state["content"]:
                state["content"] = content
                copies.append(f"{destination}-{len(copies):02d}-{operation}")
                os.makedirs(copies[-1])
                for name, data in content.items():
                    with open(os.path.join(copies[-1], name), "wb") as file:
                        file.write(data)
        finally:
            state["busy"] = False

    def watched(original: Callable[..., Any], operation: str) -> Callable[..., Any]:
        def watching(*arguments: Any, **options: Any) -> Any:
            take(operation)
            return original(*arguments, **options)

        return watching

    originals = [(owner, name, getattr(owner, name)) for owner, name in OPERATIONS]
    take("before")
    try:
        for owner, name, original in originals:
            setattr(owner, name, watched(original, name))
        yield copies
        take("after")
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def content_of(path: str) -> dict[str, bytes]:
    """Read what a checkpoint's directory holds itself; what is below it no index names.

    Args:
        path (str): the directory.

    Returns:
        Dict[str, bytes]: content by file name.
    """
    content = {}
    for name in sorted(os.listdir(path)):
        # Another rank may remove it meanwhile.
        with contextlib.suppress(OSError):
            with open(os.path.join(path, name), "rb") as file:
                content[name] = file.read()
    return content
