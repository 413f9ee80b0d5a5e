"""A pytest plugin that runs ColossalAI's own tests on a machine without an accelerator, and without the fork.

``verify_series.py`` puts this file, the CPU stand-ins (as the package ``stand_ins``) and, for a tree that lacks it, the
tests' ``utils`` module onto the path. Tests that are skipped for want of an accelerator run with the stand-ins instead.
"""

import importlib.util

# CpuAccelerator refuses these too; colossalai.testing.clear_cache_before_run calls them.
_NO_STATISTICS = ("reset_max_memory_allocated", "reset_max_memory_cached")


def install():
    """Put the stand-ins into this process."""
    from colossalai.accelerator.cpu_accelerator import CpuAccelerator
    from stand_ins import stand_in

    if stand_in.install():
        for name in _NO_STATISTICS:
            setattr(CpuAccelerator, name, lambda self, device=None: None)


class WithStandIns:
    """A worker function that begins with putting in the stand-ins.

    Args:
        function (Callable): what the test hands to ``torch.multiprocessing.spawn``.
    """

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        install()
        return self.function(*arguments)


def pytest_configure(config):
    """Make sure that the fork is not here, and that spawned workers get the stand-ins."""
    assert importlib.util.find_spec("colossalai_fork") is None, "the fork must not be importable here"
    config.addinivalue_line("markers", "dist: needs several devices")

    import torch.multiprocessing

    install()
    spawn = torch.multiprocessing.spawn
    torch.multiprocessing.spawn = lambda function, *args, **kwargs: spawn(WithStandIns(function), *args, **kwargs)


def pytest_collection_modifyitems(items):
    """Run what is skipped only because there is no accelerator."""
    for item in items:
        for node in item.listchain():
            node.own_markers = [
                mark
                for mark in node.own_markers
                if not (mark.name == "skipif" and "accelerator" in mark.kwargs.get("reason", ""))
            ]
