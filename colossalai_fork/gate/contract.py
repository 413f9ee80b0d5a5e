"""The contract of a checkpoint IO class that loads optimizer state, as test cases.

Subclass :class:`OptimizerLoadContract` in a test module, say what your class is, and pytest does the rest::

    class TestMyCheckpointIO(OptimizerLoadContract):
        world_size = 2

        def checkpoint_io(self):
            return MyCheckpointIO()

        def build(self, seed=1, recipe=None):
            ...
"""

from .cases_replacing import ReplacingCases

__all__ = ["OptimizerLoadContract"]


class OptimizerLoadContract(ReplacingCases):
    """All cases. What a subclass may say of itself is in :class:`contract_base.ContractBase`."""
