"""Counts what an action reads, opens and computes: figures that depend on nothing else the machine does."""

import collections
import contextlib
import gc
import os
import sys
from typing import Any, Callable, Iterator

import torch


def calls_of(action: Callable[[], Any]) -> tuple[int, Any]:
    """Count the calls, of Python's functions and of C's, that an action makes in this thread.

    Args:
        action (Callable[[], Any]): the action.

    Returns:
        Tuple[int, Any]: the count, and what the action returned.
    """
    counted = collections.Counter()
    gc.collect()
    gc.disable()
    sys.setprofile(lambda frame, event, argument: counted.update((event,)))
    try:
        result = action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counted["call"] + counted["c_call"], result


@contextlib.contextmanager
def searches() -> Iterator[list[int]]:
    """Count the parameters that torch looks through to find the group of each one, which is a single call each time.

    Yields:
        List[int]: the count so far.
    """
    counted = [0]
    owner, name = torch.optim.Optimizer, "_process_value_according_to_param_policy"
    original = getattr(owner, name)

    def search(
        param: torch.Tensor, value: torch.Tensor, param_id: int, param_groups: list[dict[str, Any]], key: object = None
    ) -> torch.Tensor:
        counted[0] += sum(len(group["params"]) for group in param_groups)
        return original(param, value, param_id, param_groups, key)

    setattr(owner, name, staticmethod(search))
    try:
        yield counted
    finally:
        setattr(owner, name, staticmethod(original))


def openings_of(action: Callable[[], Any]) -> dict[str, int]:
    """Count how often an action has Python open each file.

    Args:
        action (Callable[[], Any]): the action.

    Returns:
        Dict[str, int]: openings by path.
    """
    counts, counting = collections.Counter(), [True]

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and counting[0] and isinstance(arguments[0], (str, bytes, os.PathLike)):
            counts[os.fsdecode(arguments[0])] += 1

    # Audit hooks stay for the life of the process; this one goes quiet.
    sys.addaudithook(note)
    try:
        action()
    finally:
        counting[0] = False
    return counts


def bytes_read() -> int:
    """Bytes this process has asked the system to read so far (Linux).

    Returns:
        int: the bytes.
    """
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])
