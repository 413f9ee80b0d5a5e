"""Whether an optimizer was boosted. The only module that a checkpoint can do without, and that takes seconds to import."""

from typing import Any, Type

from colossalai.interface import OptimizerWrapper

__all__ = ["require_boosted", "unwrapped"]


def unwrapped(optimizer: Any) -> Any:
    """
    Take the torch optimizer out of a boosted one.

    Args:
        optimizer (Union[Optimizer, OptimizerWrapper]): An optimizer, boosted or not.

    Returns:
        Optimizer: The torch optimizer inside.
    """
    return optimizer.unwrap() if isinstance(optimizer, OptimizerWrapper) else optimizer


def require_boosted(optimizer: Any, kind: Type[OptimizerWrapper] = OptimizerWrapper) -> None:
    """
    Refuse an optimizer that Booster has not made for a class.

    Args:
        optimizer (Any): What a checkpoint IO class was given.
        kind (Type[OptimizerWrapper], optional): What Booster makes of optimizers for that class.

    Raises:
        AssertionError: If the optimizer is of another kind. Checkpoint IO classes have always raised that.
    """
    found = type(optimizer).__name__
    assert isinstance(optimizer, kind), "expected a {} made by Booster.boost(), found {}".format(kind.__name__, found)
