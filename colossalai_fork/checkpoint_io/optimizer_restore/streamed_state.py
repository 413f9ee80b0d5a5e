"""What native loading is handed: states that are read while it walks through them."""

from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch

from .containers import SEQUENCES, leaves, mapped
from .destination import Destination
from .plan import Entry

__all__ = ["StreamedState"]


class StreamedState(dict):
    """
    States by saved id, whose ``items()`` can be walked through once.

    Args:
        entries (Iterable[Entry]): The states, owned by this load.
        destination (Destination): The optimizer.
        groups (List[Dict[str, Any]]): The groups that native code is handed with them. It copies them before it walks through
            the states, and looks into this list for the group of each value from then on. So the list holds the one group
            that is looked for, whose only parameter is the one that is loaded: the search would take a time that grows with
            the square of the number of parameters.
    """

    def __init__(self, entries: Iterable[Entry], destination: Destination, groups: List[Dict[str, Any]]) -> None:
        super().__init__()
        self._entries = entries
        self._destination = destination
        self._groups = groups
        self._left_out: List[Tuple[torch.Tensor, str, Any]] = []
        self._texts: List[Tuple[torch.Tensor, str, Any]] = []

    def items(self) -> Iterator[Tuple[Any, Dict[str, Any]]]:
        group_of = {param_id: group for group in self._groups for param_id in group["params"]}
        every_group = list(self._groups)
        for param_id, param, _, state in self._entries:
            if param is not None:
                state = self._for_native(param, state)
                self._groups[:] = [{**group_of[param_id], "params": (param_id,)}]
            yield param_id, state
        self._groups[:] = every_group

    def _for_native(self, param: torch.Tensor, state: Dict[str, Any]) -> Dict[str, Any]:
        dtype = self._destination.state_dtype(param)
        left_out = []
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                # Native code would give it the dtype of the parameter, which says nothing here.
                if dtype != param.dtype and key != "step":
                    self._left_out.append((param, key, value.to(device=param.device, dtype=dtype)))
                    left_out.append(key)
            elif isinstance(value, str) or (isinstance(value, (dict, *SEQUENCES)) and _holds_text(value)):
                self._texts.append((param, key, value))
        return {key: value for key, value in state.items() if key not in left_out} if left_out else state

    def put_back(self) -> None:
        """Put in what native code was not handed, and mend the texts: it takes them apart and does not put them together."""
        state = self._destination.optimizer.state
        for param, key, value in self._left_out:
            state[param][key] = value
        for param, key, value in self._texts:
            if key in state.get(param, ()) and _holds_text(state[param][key], "<generator object "):
                state[param][key] = mapped(
                    value, lambda leaf: leaf.to(param.device) if isinstance(leaf, torch.Tensor) else leaf
                )


def _holds_text(value: Any, start: str = "") -> bool:
    return any(isinstance(leaf, str) and leaf.startswith(start) for leaf in leaves(value))
