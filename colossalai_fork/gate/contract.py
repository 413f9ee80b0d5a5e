"""The contract of a checkpoint IO class that loads optimizer state, as test cases.

Subclass :class:`OptimizerLoadContract` in a test module, say what your class is, and pytest does the rest::

    class TestMyCheckpointIO(OptimizerLoadContract):
        world_size = 2

        def checkpoint_io(self):
            return MyCheckpointIO()

        def build(self, seed=1, recipe=None):
            ...
"""

from .cases_crossing import CrossingCases
from .cases_damage import DamageCases
from .cases_native import NativeCases
from .cases_own_files import OwnFilesCases
from .cases_ranks import RankCases
from .cases_refusing import RefusingCases
from .cases_replacing import ReplacingCases
from .cases_resources import ResourceCases

__all__ = ["OptimizerLoadContract"]


class OptimizerLoadContract(
    CrossingCases, ReplacingCases, NativeCases, OwnFilesCases, RefusingCases, DamageCases, RankCases, ResourceCases
):
    """All cases. What a subclass may say of itself is in :class:`contract_base.ContractBase`."""
