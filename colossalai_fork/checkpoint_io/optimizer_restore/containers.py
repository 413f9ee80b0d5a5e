"""Walking through state that is made of containers: lists, tuples, sets, mappings."""

from collections import deque
from typing import Any, Callable, Iterator

import torch

__all__ = ["MAX_NESTING", "SEQUENCES", "leaves", "mapped", "owned_leaf"]

# No optimizer nests its state like this. Deeper, and with cycles, recursion would fail when the old state is gone already.
MAX_NESTING = 100
SEQUENCES = (list, tuple, set, frozenset, deque)


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """
    Walk through everything that is no container.

    Args:
        value (Any): A container, or anything else.
        depth (int, optional): How many containers are around it. Defaults to 0.

    Yields:
        Any: The values inside, in order; ``value`` itself if it is no container.

    Raises:
        ValueError: If containers are nested too deep, or hold themselves.
    """
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, SEQUENCES):
        yield value
        return
    if depth == MAX_NESTING:
        raise ValueError("it is nested too deep, or holds itself")
    for item in value:
        yield from leaves(item, depth + 1)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """
    Change everything that is no container.

    Args:
        value (Any): A container whose :func:`leaves` can be walked through, or anything else.
        change (Callable[[Any], Any]): Gives what takes the place of a leaf. Called in the order of :func:`leaves`.

    Returns:
        Any: A new container of the same class, of changed leaves; nothing of the old one is changed.
    """
    if isinstance(value, dict):
        items = {key: mapped(item, change) for key, item in value.items()}
        return items if type(value) is dict else _like(value, items)
    if isinstance(value, SEQUENCES):
        items = [mapped(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return change(value)


def owned_leaf(leaf: Any) -> Any:
    """
    Copy a leaf if it is a tensor.

    Args:
        leaf (Any): A leaf of a container.

    Returns:
        Any: A copy if it is a tensor, which shares no memory with it; otherwise the leaf itself.
    """
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _like(value: dict, items: dict) -> dict:
    # A defaultdict, say, is made with more than its items.
    copied = value.copy()
    copied.clear()
    copied.update(items)
    return copied
