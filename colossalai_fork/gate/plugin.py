"""The pytest side of the gate: options, the worker processes, and a record of what each case came to.

Importing this costs nothing: torch and colossalai are imported when the first case runs.
"""

import pytest


def pytest_addoption(parser):
    """Add the gate's options."""
    group = parser.getgroup("colossalai-fork", "contract of checkpoint IO classes")
    group.addoption(
        "--overlay",
        choices=["on", "off"],
        default="on",
        help="whether contract cases run with colossalai_fork.apply() in place (default: on)",
    )
    group.addoption(
        "--unmodified",
        action="store_true",
        help="run contract cases against ColossalAI as installed: the same as --overlay off",
    )


def pytest_configure(config):
    """Register the markers."""
    config.addinivalue_line("markers", "cuda: needs a CUDA device; skipped, with the reason, where there is none")


class Gate:
    """What the cases of one pytest process share.

    Args:
        overlay (bool): whether the overlay is applied in the workers.

    Attributes:
        results (list): a (contract, case, method, arguments, outcome) for each case that ran.
    """

    def __init__(self, overlay):
        self.overlay = overlay
        self.results = []
        self._pool = None

    @property
    def pool(self):
        """The worker processes, none of which is started before it is needed."""
        if self._pool is None:
            from .workers import WorkerPool

            self._pool = WorkerPool()
        return self._pool

    def record(self, contract, case, method, arguments, outcome):
        """Note what came of a case.

        Args:
            contract (ContractBase): the configuration.
            case (Case): what is known of the case.
            method (str): its name.
            arguments (dict): its arguments.
            outcome (Outcome): what came of it.
        """
        self.results.append((contract, case, method, arguments, outcome))

    def close(self):
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()


@pytest.fixture(scope="session")
def colossalai_fork_gate(request):
    """The session's worker processes."""
    config = request.config
    gate = Gate(overlay=config.getoption("--overlay") == "on" and not config.getoption("--unmodified"))
    yield gate
    gate.close()
