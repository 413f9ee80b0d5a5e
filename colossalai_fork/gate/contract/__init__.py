"""The contract of a checkpoint IO class that loads optimizer state, as test cases.

Subclass :class:`OptimizerLoadContract` in a test module, say what your class is, and pytest does the rest::

    class TestMyCheckpointIO(OptimizerLoadContract):
        world_size = 2

        def checkpoint_io(self):
            return MyCheckpointIO()

        def build(self, seed=1, recipe=None):
            ...
"""

from .base import ContractBase, case
from .cases.crossing import CrossingCases
from .cases.damage import DamageCases
from .cases.native import NativeCases
from .cases.own_files import OwnFilesCases
from .cases.ranks import RankCases
from .cases.refusing import RefusingCases
from .cases.replacing import ReplacingCases
from .cases.resources import ResourceCases

__all__ = ["ContractBase", "OptimizerLoadContract", "case"]


class OptimizerLoadContract(
    CrossingCases, ReplacingCases, NativeCases, OwnFilesCases, RefusingCases, DamageCases, RankCases, ResourceCases
):
    """All cases. What a subclass may say of itself is in :class:`~.base.ContractBase`."""
