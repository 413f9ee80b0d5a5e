"""What a contract case is, what a configuration says of itself, and how a case gets to the ranks."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable

import pytest

from ..workers.outcomes import Outcome, RankOutcome, Status
from ..workers.worker import Call
from . import checkpoint_files, declaration
from .checks import Checks
from .needs import Need
from .subjects import Recipe, Subject

if TYPE_CHECKING:
    import torch
    from colossalai.checkpoint_io import CheckpointIO


@dataclasses.dataclass(frozen=True)
class Case:
    """What is known of a case beside its code.

    Attributes:
        points (Tuple[int, ...]): the points of the contract that it checks.
        rows (Tuple[int, ...]): the rows of the catalogue of known faults that it reproduces.
        deadline (float): seconds that it may take.
        hangs (bool): whether unmodified ColossalAI is known to hang, so that nobody need wait long to see it.
        layouts (Callable[[str], bool]): the layouts in which it means something, of those that the class loads.
        needs (Tuple[Need, ...]): what must be so for it to mean anything.
    """

    points: tuple[int, ...]
    rows: tuple[int, ...]
    deadline: float
    hangs: bool
    layouts: Callable[[str], bool]
    needs: tuple[Need, ...]


def any_layout(layout: str) -> bool:
    """The layouts of a case that says nothing about them.

    Args:
        layout (str): a layout.

    Returns:
        bool: True.
    """
    return True


def case(
    *points: int,
    rows: tuple[int, ...] = (),
    deadline: float = 60.0,
    hangs: bool = False,
    layouts: Callable[[str], bool] = any_layout,
    needs: Iterable[Need] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a method a contract case: called by pytest, it runs on every rank of the class's worker processes.

    Args:
        points (int): the points of the contract that it checks.
        rows (Tuple[int, ...]): see :class:`Case`.
        deadline (float): see :class:`Case`.
        hangs (bool): see :class:`Case`.
        layouts (Callable[[str], bool]): see :class:`Case`.
        needs (Iterable[Need]): see :class:`Case`.

    Returns:
        Callable: the decorator.
    """

    def decorate(method: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(method)
        def run_in_workers(self, **arguments: Any) -> None:
            self.run_in_workers(method.__name__, arguments)

        run_in_workers.run_here = method
        run_in_workers.case = Case(points, tuple(rows), deadline, hangs, layouts, tuple(needs))
        return run_in_workers

    return decorate


#: The configurations whose class this process has found to be the one that they name.
_CHECKED = set()


class ContractBase(Checks):
    """What a configuration has to say of itself; the checks that its cases are made of are in :class:`checks.Checks`.

    Attributes:
        world_size (int): number of processes.
        layouts (Tuple[str, ...]): layouts that the class can load.
        class_under_test (str): name for reports.
        overlay (Optional[bool]): whether the overlay is applied in the workers; None leaves it to the option.
        thorough (bool): whether every case runs with all its arguments here even if that is not asked for.
        hangs (Collection[str]): cases in which unmodified ColossalAI is known to hang with this class, beside those that
            say so themselves.
        seconds_for_a_hang (float): the deadline of such a case without the overlay.
        device (str): "cpu" or "cuda".
        distributed (bool): whether the ranks load together, and therefore agree.
        fires_hooks (bool): whether load hooks of the torch optimizer fire.
        by_position (bool): whether saved ids are labels, and what counts is their position in the groups.
        cuts (bool): whether a rank keeps a part of the state only.
        whole_tensors (bool): whether what a rank has of a parameter's state it has whole.
        whole_optimizers (bool): whether optimizers can be used whose state is not elementwise (LBFGS, Adafactor) or
            made before the plugin replaces the parameters (Adagrad).
        keeps_names (bool): whether the torch optimizer keeps the names of parameters.
        accepts_flat_state (bool): whether checkpoints may hold the state of a parameter flattened.
        loads_numpy_numbers (bool): whether numbers of numpy in a group are loaded; they are refused otherwise.
        allows_empty_groups (bool): whether a group may have no parameters.
        not_applicable (Mapping[str, str]): cases that do not apply to the class, with the reasons; none of
            :data:`~..plugin.ESSENTIAL`.
        linear_in_parameters (bool): whether optimizers of many thousand parameters can be built in no time.
        running (pytest.Item): in pytest's process, the test that runs.
        rank, directory: on a worker, its rank and a directory that the ranks of the case share.
    """

    world_size = 1
    layouts = checkpoint_files.LAYOUTS
    class_under_test = "CheckpointIO"
    overlay = None
    thorough = False
    hangs = ()
    seconds_for_a_hang = 10.0
    device = "cpu"
    distributed = False
    fires_hooks = True
    by_position = True
    cuts = False
    whole_optimizers = True
    keeps_names = True
    accepts_flat_state = False
    loads_numpy_numbers = True
    allows_empty_groups = True
    linear_in_parameters = True
    not_applicable = types.MappingProxyType({})
    rank = 0
    directory = "."

    @property
    def whole_tensors(self) -> bool:
        """Whether what a rank has of a parameter's state it has whole."""
        return not self.cuts

    @property
    def has_rows_and_columns(self) -> bool:
        """Whether what a rank has of a matrix has rows and columns still."""
        return self.whole_tensors

    # ------------------------------------------------------------------ what a configuration says

    def checkpoint_io(self) -> CheckpointIO:
        """Make the checkpoint IO under test.

        Returns:
            CheckpointIO: the object.
        """
        raise NotImplementedError

    def build(self, seed: int = 1, recipe: Recipe | None = None) -> Subject:
        """Make a model and its optimizer, the way the configuration's plugin makes them. Called on every rank.

        Args:
            seed (int): seed of the parameters.
            recipe (Optional[Recipe]): what to build; the configuration's own by default.

        Returns:
            Subject: model and optimizer.
        """
        raise NotImplementedError

    def recipe(self, **changes: Any) -> Recipe:
        """The configuration's recipe.

        Args:
            changes (Any): fields that differ.

        Returns:
            Recipe: the recipe.
        """
        return dataclasses.replace(Recipe(), **changes)

    def local_state(self, subject: Subject, saved: dict[str, Any]) -> dict[str, Any]:
        """Cut a saved state to what this rank has to hold.

        Args:
            subject (Subject): where it goes.
            saved (dict): a state dict with global ids and shapes.

        Returns:
            dict: the state dict that the subject's torch optimizer could load natively.
        """
        return saved

    def state_dtype(self, recipe: Recipe) -> torch.dtype:
        """The dtype in which the torch optimizer holds the parameters.

        Args:
            recipe (Recipe): what is built.

        Returns:
            torch.dtype: the dtype.
        """
        return recipe.dtype

    # ------------------------------------------------------------------ from pytest to the workers

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give a case that asks for a layout every layout of the class; say what its author has got wrong."""
        wrong = declaration.mistakes(type(self), ContractBase)
        if wrong:
            raise pytest.Collector.CollectError("\n".join(wrong))
        if "layout" in metafunc.fixturenames:
            details = getattr(metafunc.function, "case", None)
            metafunc.parametrize("layout", [each for each in self.layouts if details is None or details.layouts(each)])

    @pytest.fixture(autouse=True)
    def _surroundings(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self._gate = request.getfixturevalue("colossalai_fork_gate")
        self.running = request.node
        self.directory = str(tmp_path)

    def why_not(self, method: str, arguments: dict[str, Any]) -> str | None:
        """Tell why a case does not apply here, as far as that is known before it runs.

        Args:
            method (str): the case.
            arguments (dict): its arguments.

        Returns:
            Optional[str]: the reason; None if it applies.
        """
        if method in self.not_applicable:
            return self.not_applicable[method]
        if not isinstance(arguments.get("layout", ""), str):
            return "the class loads no layout that it is about"  # pytest's placeholder where there are none
        needs = getattr(type(self), method).case.needs
        return next((need.reason for need in needs if not need.met(self, arguments)), None)

    def run_in_workers(self, method: str, arguments: dict[str, Any]) -> None:
        """Run a case of this class on every rank, and tell pytest what came of it.

        Args:
            method (str): the case.
            arguments (dict): its arguments.
        """
        details = getattr(type(self), method).case
        reason = self.why_not(method, arguments)
        if reason:
            outcome = Outcome([RankOutcome(0, Status.NOT_APPLICABLE, reason)])
            self._gate.record(self, details, method, arguments, outcome)
            pytest.skip(outcome.reason)
        overlay = self._gate.overlay if self.overlay is None else self.overlay
        cls = type(self)
        call = Call(cls.__module__, inspect.getfile(cls), cls.__qualname__, method, arguments, self.directory)
        deadline = details.deadline
        if (details.hangs or method in self.hangs) and not overlay:
            deadline = self.seconds_for_a_hang
        workers = self._gate.pool.get(self.world_size, overlay, self.processes(), self.device)
        outcome = workers.run(call, deadline)
        self._gate.record(self, details, method, arguments, outcome)
        if outcome.status is Status.NOT_APPLICABLE:
            pytest.skip(outcome.reason)
        if outcome.status is Status.BROKEN:
            text = f"the case itself failed, which says nothing about {self.class_under_test}"
            pytest.fail(f"{text}:\n{outcome.describe()}", False)
        self.judge(outcome)

    def judge(self, outcome: Outcome) -> None:
        """Fail the test if the class under test has violated the contract.

        Args:
            outcome (Outcome): what came of the case.
        """
        if outcome.status is Status.VIOLATED:
            pytest.fail(outcome.describe(), False)

    def prepare(self) -> None:
        """Check, on a worker, that the class under test is the one that is named and can be called."""
        if type(self) not in _CHECKED:
            declaration.check_class(self)
            _CHECKED.add(type(self))

    def processes(self) -> str:
        """Name of the set of worker processes for this class; classes with the same name and world size share one.

        Returns:
            str: the name.
        """
        return ""
