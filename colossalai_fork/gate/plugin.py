"""The pytest side of the gate: options, the worker processes, and a record of what each case came to.

pytest loads this through the entry point ``pytest11``, which bears the module's own name: whoever asks for the module by
name as well gets the same plugin and not a second one. Importing it costs nothing: torch and colossalai are imported when
the first case runs.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Iterator

import pytest

if TYPE_CHECKING:
    from .contract.base import Case, ContractBase
    from .workers.outcomes import Outcome
    from .workers.pool import WorkerPool

#: The test that is running, for what a case has to say of itself.
_RUNNING = pytest.StashKey()
#: The user property of a test report that says how the case ended.
STATUS = "contract-status"
#: Those that say why, and what was violated where.
REASON, FINDINGS = "contract-reason", "contract-findings"
#: What was left out because it does not apply: by test class, method and reason, an (id, checkpoint IO class, contract points,
#: number of processes, reason) of one of the tests.
LEFT_OUT = pytest.StashKey()
#: The same in what a process of pytest-xdist hands over as it ends.
HANDED_OVER = "contract-not-applicable"

#: Cases that no class goes without. Any other may be declared not to apply, with a reason.
ESSENTIAL = (
    "test_empty_checkpoint_leaves_no_state",
    "test_full_checkpoint",
    "test_one_rank_fails",
    "test_other_groups",
    "test_parameter_without_saved_state_has_none",
    "test_save_load_and_train_on",
)


def pytest_addoption(parser: pytest.Parser) -> None:
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
    group.addoption(
        "--thorough",
        action="store_true",
        help="run every case with all its arguments in every configuration, which takes hours; without it, configurations "
        "that are not marked as thorough run every case with one choice of arguments, another one in each configuration, "
        "and those of more than two processes run about half of the cases",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "cuda: needs a CUDA device; skipped, with the reason, where there is none")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases that do not apply, and choose the arguments that the others run with.

    All arguments are taken if they are wanted, and nothing is left out where tests are named one by one.
    """
    if any("::" in argument for argument in config.args):
        return
    cases = [item for item in items if hasattr(getattr(item, "function", None), "case")]
    dropped, choices = set(), {}
    left_out = config.stash.setdefault(LEFT_OUT, {})
    for item in cases:
        contract = item.cls()
        reason = contract.why_not(item.originalname, item.callspec.params if hasattr(item, "callspec") else {})
        if reason:
            dropped.add(item)
            points = item.function.case.points
            found = (item.nodeid, contract.class_under_test, points, contract.world_size, reason)
            left_out.setdefault((item.cls, item.originalname, reason), found)
        elif not (item.cls.thorough or config.getoption("--thorough")):
            choices.setdefault((item.cls, item.originalname), []).append(item)
    for (cls, method), alternatives in choices.items():
        # Not random: a failure must come again, and xdist's processes must choose alike.
        number = zlib.crc32(f"{cls.__name__}.{method}".encode())
        chosen = number % len(alternatives)
        dropped.update(alternatives[:chosen] + alternatives[chosen + 1 :])
        # Three and four processes on two cores take long, and the configurations of a class drop different cases.
        half = cls.world_size > 2 and method not in ESSENTIAL
        if half and number // len(alternatives) % 2:
            dropped.add(alternatives[chosen])
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what was left out, where this is a process of pytest-xdist."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[HANDED_OVER] = list(session.config.stash.get(LEFT_OUT, {}).values())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember which test runs."""
    item.config.stash[_RUNNING] = item


class Gate:
    """What the cases of one pytest process share.

    Args:
        overlay (bool): whether the overlay is applied in the workers.
        config (Optional[pytest.Config]): knows which test runs; without it outcomes are in no test report.

    Attributes:
        results (list): a (contract, case, method, arguments, outcome) for each case that ran.
    """

    def __init__(self, overlay: bool, config: pytest.Config | None = None) -> None:
        self.overlay = overlay
        self.config = config
        self.results = []
        self._pool = None

    @property
    def pool(self) -> WorkerPool:
        """The worker processes, none of which is started before it is needed."""
        if self._pool is None:
            from .workers.pool import WorkerPool

            self._pool = WorkerPool()
        return self._pool

    def record(
        self, contract: ContractBase, case: Case, method: str, arguments: dict[str, Any], outcome: Outcome
    ) -> None:
        """Note what came of a case.

        Args:
            contract (ContractBase): the configuration.
            case (Case): what is known of the case.
            method (str): its name.
            arguments (dict): its arguments.
            outcome (Outcome): what came of it.
        """
        self.results.append((contract, case, method, arguments, outcome))
        item = None if self.config is None else self.config.stash.get(_RUNNING, None)
        if item is not None:
            # Properties are in the reports that pytest hands on and writes, from other processes too.
            item.user_properties += [
                (STATUS, outcome.status.value),
                ("checkpoint-io", contract.class_under_test),
                ("contract-points", " ".join(map(str, case.points))),
                ("processes", contract.world_size),
                (REASON, outcome.reason),
                (FINDINGS, json.dumps(outcome.findings, ensure_ascii=False)),
            ]

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()


@pytest.fixture(scope="session")
def colossalai_fork_gate(request: pytest.FixtureRequest) -> Iterator[Gate]:
    """The session's worker processes."""
    config = request.config
    overlay = config.getoption("--overlay") == "on" and not config.getoption("--unmodified")
    gate = Gate(overlay, config)
    yield gate
    gate.close()
