"""A pytest plugin that runs some of the gate's cases: those of some classes, of few processes, of one kind of device.

Loaded by ``colossalai-fork gate`` in every process that pytest starts.
"""

import json
import os


def pytest_addoption(parser):
    """Add the options."""
    group = parser.getgroup("colossalai-fork")
    group.addoption("--gate-classes", default="", help="names of checkpoint IO classes, separated by commas")
    group.addoption("--gate-processes", type=int, default=0, help="the most processes of a configuration")
    group.addoption("--gate-device", choices=["cpu", "cuda"], default="cpu", help="the kind of device")
    group.addoption("--gate-deselected", default="", help="a file to write the ids of cases that were left out to")


def short_name(name):
    """The name of a class as it is compared.

    Args:
        name (str): the name of a checkpoint IO class, or the part of it before "CheckpointIO".

    Returns:
        str: that part, in lower case.
    """
    return name.strip().lower().replace("_", "").removesuffix("checkpointio")


def is_selected(cls, classes, processes, device, on_cuda):
    """Decide about the cases of a test class.

    Args:
        cls (Optional[type]): the test class.
        classes (Collection[str]): short names of checkpoint IO classes; empty for all.
        processes (int): the most processes of a configuration; 0 for any number.
        device (str): "cpu" or "cuda".
        on_cuda (bool): whether it is marked as one that needs CUDA.

    Returns:
        bool: whether they run.
    """
    if not hasattr(cls, "class_under_test"):
        # What stands for a configuration whose devices are missing says so by being skipped.
        return on_cuda and device == "cuda"
    if on_cuda != (device == "cuda") or (processes and cls.world_size > processes):
        return False
    return not classes or short_name(cls.class_under_test) in classes


def pytest_collection_modifyitems(config, items):
    """Leave out what is not selected."""
    classes = {short_name(name) for name in config.getoption("--gate-classes").split(",") if name.strip()}
    wanted = (classes, config.getoption("--gate-processes"), config.getoption("--gate-device"))
    selected, deselected = [], []
    for item in items:
        on_cuda = item.get_closest_marker("cuda") is not None
        (selected if is_selected(item.cls, *wanted, on_cuda) else deselected).append(item)
    path = config.getoption("--gate-deselected")
    if path:
        # Each process of a distributed run collects the same, and replaces the file as a whole.
        own = f"{path}.{os.getpid()}"
        with open(own, "w", encoding="utf-8") as file:
            json.dump([item.nodeid for item in deselected], file)
        os.replace(own, path)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected
