"""What an IO class knows of the optimizer that it loads into."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from .errors import Problem
from .files.saved_state import SavedState
from .placement import Placement, Replicated

__all__ = ["Destination", "SomeParameters", "check_group_sizes"]


class Destination:
    """
    An optimizer in memory: which saved parameter belongs to which of its parameters, and which part of it.

    This one takes the saved ids by their position in the groups, as native ``load_state_dict`` does, and keeps everything.
    Subclasses know better.

    Args:
        optimizer (Optimizer): The torch optimizer, without ColossalAI's wrapper.
        ranks (ProcessGroup, optional): The ranks that load together, so that all of them do or none. Without them this rank
            acts for itself.
    """

    # Native loading takes whatever the groups hold, so a load hook may make an ill-fitting checkpoint fit.
    by_position = True
    # Whether a parameter whose saved state is empty gets no entry at all, where native loading makes an empty one.
    empty_is_absent = False
    # Whether the optimizer is whole, as somebody made it, so that its state dict may be of his own making, too.
    may_have_own_layout = True
    # Whether state of parameters that the groups do not hold stays.
    adds = False

    def __init__(self, optimizer: Optimizer, ranks: Optional[ProcessGroup] = None) -> None:
        self.optimizer = optimizer
        self.ranks = ranks

    @property
    def optimizer_class(self) -> type:
        """type: The class of the optimizer, which tells what its groups and states need."""
        return type(self.optimizer)

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        """List[Dict[str, Any]]: The groups to be loaded."""
        return self.optimizer.param_groups

    def state_of(self, param: Any) -> Mapping[str, Any]:
        """
        Look at the state of a parameter.

        Args:
            param (torch.Tensor): One of the parameters.

        Returns:
            Mapping[str, Any]: The state that it has now. No entry is made.
        """
        return self.optimizer.state.get(param, {})

    def adapted(self, saved: SavedState) -> SavedState:
        """
        Give a checkpoint the form that the optimizer's parameters have, where more than a cut leads there.

        Args:
            saved (SavedState): The opened checkpoint.

        Returns:
            SavedState: What is validated and loaded instead.

        Raises:
            CheckpointLoadError: If that is not possible. Nothing has changed.
        """
        return saved

    def for_local_state(self) -> "Destination":
        """
        Give the destination that state already cut to this rank's part is validated against.

        Returns:
            Destination: The same optimizer, for state that has been cut to what this rank keeps.
        """
        return Destination(self.optimizer, self.ranks)

    def state_dtype(self, param: Any) -> torch.dtype:
        """
        Tell the dtype that the state of a parameter has.

        Args:
            param (torch.Tensor): One of the optimizer's parameters.

        Returns:
            torch.dtype: The dtype of its state; native loading takes the parameter's for granted.
        """
        return param.dtype

    def placement(self, param: Any) -> Placement:
        """
        Tell which part of a parameter's saved state this rank keeps.

        Args:
            param (torch.Tensor): One of the optimizer's parameters.

        Returns:
            Placement: The part of its saved state that this rank keeps.
        """
        return Replicated(param.shape)

    def local_groups(
        self, groups: List[Dict[str, Any]], source: str, problems: List[Problem]
    ) -> Optional[List[Dict[str, Any]]]:
        """
        Choose what this rank's optimizer gets of the saved groups.

        Args:
            groups (List[Dict[str, Any]]): The saved groups.
            source (str): What to call their place in messages.
            problems (List[Problem]): Whatever does not fit is added here.

        Returns:
            Optional[List[Dict[str, Any]]]: One group for each of the optimizer's, with the saved ids of its parameters
                in their order; None if there is no such choice.
        """
        sizes = [len(group["params"]) for group in self.param_groups]
        return groups if check_group_sizes(sizes, groups, source, problems) else None


class SomeParameters(Destination):
    """
    Some of an optimizer's parameters. The state of the others, and all groups, stay as they are.

    Args:
        optimizer (Optimizer): The torch optimizer.
        param_groups (List[Dict[str, Any]]): Its groups, reduced to these parameters.
    """

    adds = True

    def __init__(self, optimizer: Optimizer, param_groups: List[Dict[str, Any]]) -> None:
        super().__init__(optimizer)
        self._param_groups = param_groups

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        return self._param_groups


def check_group_sizes(sizes: Sequence[int], groups: List[Dict[str, Any]], source: str, problems: List[Problem]) -> bool:
    """
    Check that saved groups have as many parameters as those they are meant for.

    Args:
        sizes (Sequence[int]): The number of parameters of each group that the optimizer was built with.
        groups (List[Dict[str, Any]]): The saved groups.
        source (str): What to call their place in messages.
        problems (List[Problem]): Whatever does not fit is added here.

    Returns:
        bool: Whether all have.
    """
    if len(groups) != len(sizes):
        text = "the number of parameter groups differs"
        problems.append(Problem(text, False, source, expected=len(sizes), found=len(groups)))
        return False
    fits = True
    for position, (size, saved) in enumerate(zip(sizes, groups)):
        if size != len(saved["params"]):
            text = "parameter group {} has another number of parameters".format(position)
            problems.append(Problem(text, False, source, expected=size, found=len(saved["params"])))
            fits = False
    return fits
