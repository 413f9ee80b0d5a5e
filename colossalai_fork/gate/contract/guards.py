"""Why unmodified ColossalAI holds in some cases: reasons that a case gives for being a guard, not a regression test."""

import importlib.metadata

from .checkpoint_files import is_safetensors, is_sharded

ALL_OVERWRITTEN = (
    "every entry and every key of the present state is in the checkpoint, so a merge overwrites all of them"
)
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


def any_pickle_is_opened(contract, arguments):
    """Before 2.6, torch opened any pickle; what is pickled inside safetensors, unmodified ColossalAI opens to this day.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    version = tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])
    if version < (2, 6) or arguments["layout"] == "safetensors-one-file":
        return "the pickle is opened, whatever is in it"
    return None


def one_file_is_looked_for(contract, arguments):
    """Unmodified ColossalAI wants a checkpoint to be a file or a directory.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    gone = arguments.get("damage") in ("missing", "a directory") or arguments.get("part") == "shard"
    if gone and not is_sharded(arguments["layout"]):
        return "a path that is no file is refused first"
    return None


def index_is_looked_for(contract, arguments):
    """The same of the index.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    return "a directory without an index is refused first" if arguments["damage"] == "missing" else None


def group_list_is_expected(contract, arguments):
    """Unmodified ColossalAI wants the group file to hold a list.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    if {arguments.get("damage"), arguments.get("content")} & {"another object", "a mapping"}:
        return "the type of the groups is checked first" if is_sharded(arguments["layout"]) else None
    return None


def group_file_is_looked_for(contract, arguments):
    """An index that is a list has no entry that names the group file.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    return "the group file is looked for first" if arguments["content"] == "a list" else None


def one_file_saved(contract, arguments):
    """Unmodified ColossalAI saves and loads one file through torch.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    if contract.upstream_one_file_is_native and arguments["shards"] == "one file":
        return "a checkpoint of one file is saved and loaded through torch"
    return None


def no_state_is_saved(contract, arguments):
    """Unmodified ColossalAI makes no state as it saves, unless it is Gemini.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    return "state is saved as it is" if contract.replaces_entries else None


def whole_state_saved(contract, arguments):
    """The same, unless state is cut; and a full checkpoint overwrites everything.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    if not contract.cuts:
        return "every parameter has saved state, which replaces what it had"
    if arguments["name"] == "SGD" and arguments["shards"] == "one file":
        return "there is no state"
    return None


def everything_is_overwritten(contract, arguments):
    """A merge goes unnoticed for optimizers that have state of every parameter before the first step.

    Args:
        contract (ContractBase): the configuration.
        arguments (dict): arguments of the case.

    Returns:
        Optional[str]: the reason.
    """
    return ALL_OVERWRITTEN if arguments["name"] in ("Adagrad", "LBFGS") else None


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
