"""Gathering the state of one parameter for saving: the inverse of what its placement cuts."""

from typing import Any, Dict, List, Optional, Union

import torch
import torch.distributed as dist
from colossalai.utils import get_current_device
from torch.distributed import ProcessGroup

from .placement import FlatSlice, PartitionedDimension, Placement
from .state_kinds import AVERAGED_STATE, is_scalar, placement_of_state

__all__ = ["gather_parts", "in_pinned_memory"]


def gather_parts(
    state: Dict[str, Any],
    placement: Placement,
    tp_group: ProcessGroup,
    zero_group: Optional[ProcessGroup] = None,
    everywhere: bool = True,
) -> Dict[str, Any]:
    """
    Put the parts of a parameter's state together.

    Must be called on every rank of ``tp_group`` and of ``zero_group``.

    Args:
        state (Dict[str, Any]): The state on this rank. Not changed.
        placement (Placement): The part of the parameter that this rank has in ``tp_group``.
        tp_group (ProcessGroup): The tensor parallel group.
        zero_group (ProcessGroup, optional): The ranks that ZeRO divides the state among, if it does.
        everywhere (bool, optional): Whether every rank gets the whole, or the first of each group alone. Defaults to True.

    Returns:
        Dict[str, Any]: The state with whole tensors. Where nothing had to be put together they are those of ``state``; ranks
            that do not get the whole get what they could put together.

    Raises:
        ValueError: If a state is neither one number nor cut as the parameter is, or if ranks have averages of their own parts.
            Every rank of both groups raises it.
    """
    whole_state: Dict[str, Any] = {}
    for key, value in state.items():
        # One number belongs to the whole parameter, and every rank has its copy.
        if not is_scalar(key, value):
            value = value.detach()
            part = placement_of_state(placement, key)
            if key in AVERAGED_STATE and len(placement.global_shape) > 1:
                _check_average(key, value, placement.divides and not part.divides, tp_group, zero_group)
            parts: Optional[List[torch.Tensor]] = [value]
            # An optimizer that does without ZeRO keeps whole tensors, whatever the plugin was asked for.
            if zero_group is not None and tuple(value.shape) != part.local_shape:
                slices = FlatSlice(placement, dist.get_rank(zero_group), dist.get_world_size(zero_group))
                parts = _parts(key, value, slices, zero_group, everywhere)
                value = value if parts is None else slices.join(parts)
            if parts is not None and part.divides:
                parts = _parts(key, value, part, tp_group, everywhere)
                value = value if parts is None else part.join(parts)
        whole_state[key] = value
    return whole_state


def in_pinned_memory(buffers: Dict[str, torch.Tensor], key: str, value: torch.Tensor) -> torch.Tensor:
    """
    Copy a tensor into a pinned buffer, for asynchronous writing.

    Args:
        buffers (Dict[str, torch.Tensor]): The buffers of one parameter by state name. The buffer is made on first use.
        key (str): The state's name.
        value (torch.Tensor): The tensor.

    Returns:
        torch.Tensor: The buffer.
    """
    if key not in buffers:
        buffers[key] = torch.empty_like(value, pin_memory=True, device="cpu")
    return buffers[key].copy_(value)


def _check_average(
    key: str, value: torch.Tensor, over_the_cut: bool, tp_group: ProcessGroup, zero_group: Optional[ProcessGroup]
) -> None:
    # Moments of rows and columns belong to the whole parameter only if the ranks have averaged together. ColossalAI's
    # optimizers do not where ZeRO divides a parameter, nor where they step copies that know nothing of the cut.
    apart = zero_group is not None and dist.get_world_size(zero_group) > 1
    if not apart and over_the_cut and dist.get_world_size(tp_group) > 1:
        value = value.to(get_current_device()).contiguous()
        # Not like the value: what has one element may have any stride, and torch refuses to show its bytes then.
        copies = [value.new_empty(value.shape) for _ in range(dist.get_world_size(tp_group))]
        dist.all_gather(copies, value, group=tp_group)
        # By their bytes: what is not a number equals nothing.
        first, *others = (copy.view(torch.uint8) for copy in copies)
        apart = not all(torch.equal(first, other) for other in others)
    if apart:
        raise ValueError("the state {!r} cannot be gathered: each rank has averaged its own part alone".format(key))


def _parts(
    key: str,
    value: torch.Tensor,
    placement: Union[FlatSlice, PartitionedDimension],
    group: ProcessGroup,
    everywhere: bool,
) -> Optional[List[torch.Tensor]]:
    if not placement.is_part(value.shape):
        text = "the state {!r} cannot be gathered: its shape {} is not that of the parameter's part, {}"
        raise ValueError(text.format(key, tuple(value.shape), placement.local_shape))
    size = placement.world_size
    if size == 1:
        return [value]
    value = value.to(get_current_device()).contiguous()
    receives = everywhere or dist.get_rank(group) == 0
    parts = [torch.empty_like(value) for _ in range(size)] if receives else None
    if everywhere:
        dist.all_gather(parts, value, group=group)
    else:
        dist.gather(value, parts, dst=dist.get_global_rank(group, 0), group=group)
    return parts
