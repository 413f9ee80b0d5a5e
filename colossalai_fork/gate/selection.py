"""A pytest plugin that runs some of the gate's cases: those of some classes, of few processes, of one kind of device.

Loaded by ``colossalai-fork gate`` in every process that pytest starts.
"""

import json
import os
from typing import Collection, Iterable

import pytest

from .plugin import ESSENTIAL, LEFT_OUT


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("colossalai-fork")
    group.addoption("--gate-classes", default="", help="names of checkpoint IO classes, separated by commas")
    group.addoption("--gate-processes", type=int, default=0, help="the most processes of a configuration")
    group.addoption("--gate-device", choices=["cpu", "cuda"], default="cpu", help="the kind of device")
    group.addoption("--gate-collected", default="", help="a file to write to what was collected")


def short_name(name: str) -> str:
    """The name of a class as it is compared.

    Args:
        name (str): the name of a checkpoint IO class, or the part of it before "CheckpointIO".

    Returns:
        str: that part, in lower case.
    """
    return name.strip().lower().replace("_", "").removesuffix("checkpointio")


def is_selected(cls: type | None, classes: Collection[str], processes: int, device: str, on_cuda: bool) -> bool:
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


def class_of(item: pytest.Item) -> type | None:
    """The configuration that a test is about.

    Args:
        item (pytest.Item): the test.

    Returns:
        Optional[type]: its test class; of a crossing, the configuration that loads.
    """
    if item.cls is not None:
        return item.cls
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return parameters.get("loader") or parameters.get("saver")


def without_essentials(classes: Iterable[type]) -> list[str]:
    """Look for classes of which no configuration runs what every class has to hold.

    Args:
        classes (Iterable[type]): all test classes.

    Returns:
        List[str]: a line for each class and missing case.
    """
    missing = {}
    for cls in classes:
        for method in ESSENTIAL:
            # A class that makes up its own cases is held against nothing else.
            if any(callable(vars(owner).get(method)) for owner in cls.__mro__):
                runs = callable(getattr(cls, method, None))
                missing[cls.class_under_test, method] = missing.get((cls.class_under_test, method), True) and not runs
    return [f"no configuration of {name} runs {method}" for (name, method), absent in missing.items() if absent]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not selected; note what there is."""
    names = [name.strip() for name in config.getoption("--gate-classes").split(",") if name.strip()]
    wanted = ({*map(short_name, names)}, config.getoption("--gate-processes"), config.getoption("--gate-device"))
    classes = {item: class_of(item) for item in items}
    contracts = {cls for cls in classes.values() if hasattr(cls, "class_under_test")}
    known = sorted({cls.class_under_test for cls in contracts})
    failures = unknown_classes(names, known) + without_essentials(sorted(contracts, key=lambda cls: cls.__name__))
    selected, deselected = [], []
    for item, cls in classes.items():
        on_cuda = item.get_closest_marker("cuda") is not None
        # With a mistake, waiting for the rest would be of no use.
        (selected if not failures and is_selected(cls, *wanted, on_cuda) else deselected).append(item)
    left_out = config.stash.get(LEFT_OUT, {})
    for found in [each for each in left_out if not is_selected(each[0], *wanted, each[0].device == "cuda")]:
        del left_out[found]
    path = config.getoption("--gate-collected")
    if path:
        # Each process of a distributed run collects the same, and replaces the file as a whole.
        own = f"{path}.{os.getpid()}"
        ids = [item.nodeid for item in deselected]
        with open(own, "w", encoding="utf-8") as file:
            json.dump({"deselected": ids, "selected": len(selected), "failures": failures}, file)
        os.replace(own, path)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected


def unknown_classes(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Find names that no class has.

    Args:
        names (Iterable[str]): what was asked for.
        known (Iterable[str]): the classes there are.

    Returns:
        List[str]: a line for each.
    """
    short = {short_name(each) for each in known}
    return [
        f"there is no class {name}; there are {', '.join(known) or 'none'}"
        for name in names
        if short_name(name) not in short
    ]
