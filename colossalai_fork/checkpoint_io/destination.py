"""What an IO class knows of the optimizer that it loads into."""

from typing import Any, Dict, List, Optional

from colossalai.interface import OptimizerWrapper
from torch.optim import Optimizer

from .errors import Problem
from .placement import Placement, Replicated

__all__ = ["Destination", "unwrapped"]


def unwrapped(optimizer: Any) -> Optimizer:
    """
    Args:
        optimizer (Union[Optimizer, OptimizerWrapper]): An optimizer, boosted or not.

    Returns:
        Optimizer: The torch optimizer inside.
    """
    return optimizer.unwrap() if isinstance(optimizer, OptimizerWrapper) else optimizer


class Destination:
    """
    An optimizer in memory: which saved parameter belongs to which of its parameters, and which part of it.

    This one takes the saved ids by their position in the groups, as native ``load_state_dict`` does, and keeps everything.
    Subclasses know better.

    Args:
        optimizer (Optimizer): The torch optimizer, without ColossalAI's wrapper.
    """

    # Native loading takes whatever the groups hold, so a load hook may make an ill-fitting checkpoint fit.
    by_position = True

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def placement(self, param: Any) -> Placement:
        """
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
        present = self.optimizer.param_groups
        if len(groups) != len(present):
            text = "the number of parameter groups differs"
            problems.append(Problem(text, False, source, expected=len(present), found=len(groups)))
            return None
        sound = True
        for position, (group, saved) in enumerate(zip(present, groups)):
            if len(group["params"]) != len(saved["params"]):
                text = "parameter group {} has another number of parameters".format(position)
                problems.append(Problem(text, False, source, expected=len(group["params"]), found=len(saved["params"])))
                sound = False
        return groups if sound else None
