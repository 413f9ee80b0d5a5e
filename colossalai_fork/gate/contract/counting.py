"""Counts what an action reads and computes: figures that depend on nothing else the machine does."""

import collections
import gc
import sys

import torch


def work_of(action):
    """Count the calls that an action makes in this thread, and the parameters that torch looks through meanwhile.

    To find the group of each parameter, torch's own loading searches the groups' lists, each in a single call.

    Args:
        action (Callable[[], Any]): the action.

    Returns:
        Tuple[int, Any]: the count, and what the action returned.
    """
    counted = collections.Counter()
    owner, name = torch.optim.Optimizer, "_process_value_according_to_param_policy"
    original = getattr(owner, name)

    def search(param, value, param_id, param_groups, key=None):
        counted["searched"] += sum(len(group["params"]) for group in param_groups)
        return original(param, value, param_id, param_groups, key)

    setattr(owner, name, staticmethod(search))
    gc.collect()
    gc.disable()
    sys.setprofile(lambda frame, event, argument: counted.update((event,)))
    try:
        result = action()
    finally:
        sys.setprofile(None)
        gc.enable()
        setattr(owner, name, staticmethod(original))
    return counted["call"] + counted["c_call"] + counted["searched"], result


def bytes_read():
    """Bytes this process has asked the system to read so far (Linux).

    Returns:
        int: the bytes.
    """
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])
