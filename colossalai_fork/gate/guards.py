"""Why unmodified ColossalAI holds in some cases: reasons that a case gives for being a guard, not a regression test."""

from .checkpoint_files import is_safetensors, is_sharded

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


def one_file_of_whole_state_goes_native(contract, arguments):
    """The same, where ColossalAI has no state to cut: it cuts tensors of one number, which belong to every rank.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    return None if contract.cuts else one_file_goes_native(contract, arguments)


def parameters_are_replaced(contract, arguments):
    """Classes that merge parameters into the present state replace what each parameter has; Gemini merges that too.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    return "every parameter has saved state, which replaces what it had" if contract.replaces_entries else None


def empty_entries_are_saved(contract, arguments):
    """A torch file holds the empty entry of a parameter, and unmodified ColossalAI puts it in the place of the old one.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    if contract.replaces_entries and not is_safetensors(arguments["layout"]):
        return "the empty entry is in the file, and replaces the old one"
    return None


def groups_are_counted(contract, arguments):
    """Most classes of unmodified ColossalAI compare the groups before they change anything.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    return "the groups are compared first" if contract.upstream_counts_groups else None


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
