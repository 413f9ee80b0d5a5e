"""For classes that unmodified ColossalAI treats differently: the contract's cases with other reasons to hold there."""

import dataclasses
import functools


def guarded_by(method, reason, hangs=False):
    """A case with another guard.

    Args:
        method (Callable): the case, as the contract has it.
        reason (Optional[str]): why unmodified ColossalAI holds with this class; None says that it does not.
        hangs (bool): whether it is known to hang with this class.

    Returns:
        Callable: the same case.
    """

    @functools.wraps(method)
    def same(self, **arguments):
        method(self, **arguments)

    same.case = dataclasses.replace(
        method.case, guard=lambda contract, arguments: reason, hangs=hangs or method.case.hangs
    )
    return same
