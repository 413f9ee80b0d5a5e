"""Why unmodified ColossalAI holds in some cases: reasons that a case gives for being a guard, not a regression test."""

from .checkpoint_files import is_sharded

ONE_FILE = "a checkpoint of one file is handed to torch, which replaces the state"


def one_file_goes_native(contract, arguments):
    """Unmodified ColossalAI loads a checkpoint of one file natively, for the classes that say so.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    if contract.upstream_one_file_is_native and not is_sharded(arguments["layout"]):
        return ONE_FILE
    return None


def any_of(*guards):
    """A guard that holds where one of several does.

    Args:
        guards (Callable): the guards.

    Returns:
        Callable: the guard.
    """

    def first_reason(contract, arguments):
        reasons = (guard(contract, arguments) for guard in guards)
        return next((reason for reason in reasons if reason), None)

    return first_reason
