"""For classes that unmodified ColossalAI treats differently: the contract's cases with other reasons to hold there."""

import dataclasses
import functools


def guarded_by(method, reason, hangs=False):
    """A case with another guard.

    Args:
        method (Callable): the case, as the contract has it.
        reason (Union[None, str, Callable]): why unmodified ColossalAI holds with this class; None says that it does not. A
            function is given the arguments of the case.
        hangs (bool): whether it is known to hang with this class.

    Returns:
        Callable: the same case.
    """

    @functools.wraps(method)
    def same(self, **arguments):
        method(self, **arguments)

    def guard(contract, arguments):
        return reason(arguments) if callable(reason) else reason

    same.case = dataclasses.replace(method.case, guard=guard, hangs=hangs or method.case.hangs)
    return same
