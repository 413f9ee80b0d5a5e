"""What a contract case is, how it gets to the ranks, and the checks that cases are made of."""

import dataclasses
import functools
import inspect
import os
import re
from typing import Any, Callable, Optional, Tuple

import pytest
import torch
import torch.distributed

from . import checkpoint_files
from .observation import differences, look_at, loose_storages, twin_of
from .outcomes import ContractViolation, NotApplicable, Status
from .subjects import Recipe, closure_for, give_gradients, saved_natively
from .worker_main import Call


@dataclasses.dataclass(frozen=True)
class Case:
    """What is known of a case beside its code.

    Attributes:
        points (Tuple[int, ...]): the points of the contract that it checks.
        rows (Tuple[int, ...]): the rows of the catalogue of known faults that it reproduces.
        guard (Optional[Callable]): given the contract and the arguments, why unmodified ColossalAI holds here; None
            or a result of None says that it does not, which makes the case a regression test.
        deadline (float): seconds that it may take.
        hangs (bool): whether unmodified ColossalAI is known to hang, so that nobody need wait long to see it.
    """

    points: Tuple[int, ...]
    rows: Tuple[int, ...]
    guard: Optional[Callable[[Any, dict], Optional[str]]]
    deadline: float
    hangs: bool


def case(*points, rows=(), guard=None, deadline=60.0, hangs=False):
    """Make a method a contract case: called by pytest, it runs on every rank of the class's worker processes.

    Args:
        points (int): the points of the contract that it checks.
        rows (Tuple[int, ...]): see :class:`Case`.
        guard (Union[None, str, Callable]): see :class:`Case`; a text holds for all arguments.
        deadline (float): see :class:`Case`.
        hangs (bool): see :class:`Case`.

    Returns:
        Callable: the decorator.
    """
    because = (lambda contract, arguments: guard) if isinstance(guard, str) else guard

    def decorate(method):
        @functools.wraps(method)
        def run_in_workers(self, **arguments):
            self.run_in_workers(method.__name__, arguments)

        run_in_workers.run_here = method
        run_in_workers.case = Case(points, tuple(rows), because, deadline, hangs)
        return run_in_workers

    return decorate


class ContractBase:
    """The checks, and what a configuration has to say of itself.

    Attributes:
        world_size (int): number of processes.
        layouts (Tuple[str, ...]): layouts that the class can load.
        class_under_test (str): name for reports.
        overlay (Optional[bool]): whether the overlay is applied in the workers; None leaves it to the option.
        faults_expected (bool): judge unmodified ColossalAI: regression tests must fail and guards must hold.
        distributed (bool): whether the ranks load together, and therefore agree.
        fires_hooks (bool): whether load hooks of the torch optimizer fire.
        by_position (bool): whether saved ids are labels, and what counts is their position in the groups.
        cuts (bool): whether a rank keeps a part of the state only.
        whole_optimizers (bool): whether optimizers whose state is not elementwise (LBFGS, Adafactor) can be used.
        upstream_one_file_is_native (bool): whether unmodified ColossalAI loads a checkpoint of one file natively.
        replaces_entries (bool): whether unmodified ColossalAI replaces what a parameter has by what it is saved with.
        upstream_counts_groups (bool): whether unmodified ColossalAI compares saved groups with the present ones.
        keeps_names (bool): whether the torch optimizer keeps the names of parameters.
        accepts_flat_state (bool): whether checkpoints may hold the state of a parameter flattened.
        loads_numpy_numbers (bool): whether numbers of numpy in a group are loaded; they are refused otherwise.
        allows_empty_groups (bool): whether a group may have no parameters.
        linear_in_parameters (bool): whether optimizers of many thousand parameters can be built in no time.
        rank, directory: on a worker, its rank and a directory that the ranks of the case share.
    """

    world_size = 1
    layouts = checkpoint_files.LAYOUTS
    class_under_test = "CheckpointIO"
    overlay = None
    faults_expected = False
    distributed = False
    fires_hooks = True
    by_position = True
    cuts = False
    whole_optimizers = True
    upstream_one_file_is_native = True
    replaces_entries = True
    upstream_counts_groups = True
    keeps_names = True
    accepts_flat_state = False
    loads_numpy_numbers = True
    allows_empty_groups = True
    linear_in_parameters = True
    rank = 0
    directory = "."

    # ------------------------------------------------------------------ what a configuration says

    def checkpoint_io(self):
        """Make the checkpoint IO under test.

        Returns:
            CheckpointIO: the object.
        """
        raise NotImplementedError

    def build(self, seed=1, recipe=None):
        """Make a model and its optimizer, the way the configuration's plugin makes them. Called on every rank.

        Args:
            seed (int): seed of the parameters.
            recipe (Optional[Recipe]): what to build; the configuration's own by default.

        Returns:
            Subject: model and optimizer.
        """
        raise NotImplementedError

    def recipe(self, **changes):
        """The configuration's recipe.

        Args:
            changes (Any): fields that differ.

        Returns:
            Recipe: the recipe.
        """
        return dataclasses.replace(Recipe(), **changes)

    def local_state(self, subject, saved):
        """Cut a saved state to what this rank has to hold.

        Args:
            subject (Subject): where it goes.
            saved (dict): a state dict with global ids and shapes.

        Returns:
            dict: the state dict that the subject's torch optimizer could load natively.
        """
        return saved

    def state_dtype(self, recipe):
        """The dtype in which the torch optimizer holds the parameters.

        Args:
            recipe (Recipe): what is built.

        Returns:
            torch.dtype: the dtype.
        """
        return recipe.dtype

    # ------------------------------------------------------------------ from pytest to the workers

    def pytest_generate_tests(self, metafunc):
        """Give a case that asks for a layout every layout of the class."""
        if "layout" in metafunc.fixturenames:
            metafunc.parametrize("layout", self.layouts)

    @pytest.fixture(autouse=True)
    def _surroundings(self, request, tmp_path):
        self._gate = request.getfixturevalue("colossalai_fork_gate")
        self.directory = str(tmp_path)

    def run_in_workers(self, method, arguments):
        """Run a case of this class on every rank, and tell pytest what came of it.

        Args:
            method (str): the case.
            arguments (dict): its arguments.
        """
        details = getattr(type(self), method).case
        overlay = self._gate.overlay if self.overlay is None else self.overlay
        cls = type(self)
        call = Call(cls.__module__, inspect.getfile(cls), cls.__qualname__, method, arguments, self.directory)
        deadline = 3.0 if details.hangs and self.faults_expected else details.deadline
        outcome = self._gate.pool.get(self.world_size, overlay, self.processes()).run(call, deadline)
        self._gate.record(self, details, method, arguments, outcome)
        text = outcome.describe()
        if outcome.status is Status.NOT_APPLICABLE:
            pytest.skip(text)
        if outcome.status is Status.BROKEN:
            pytest.fail(f"the case itself failed, which says nothing about {self.class_under_test}:\n{text}", False)
        if self.faults_expected:
            reason = details.guard and details.guard(self, arguments)
            if outcome.status is Status.HELD and not reason:
                pytest.fail("unmodified ColossalAI passes this regression test", False)
            if outcome.status is Status.VIOLATED and reason:
                pytest.fail(f"unmodified ColossalAI fails this guard, said to hold because {reason}:\n{text}", False)
        elif outcome.status is Status.VIOLATED:
            pytest.fail(text, False)

    def processes(self):
        """Name of the set of worker processes for this class; classes with the same name and world size share one.

        Returns:
            str: the name.
        """
        return ""

    # ------------------------------------------------------------------ on the ranks

    def everyone(self, value):
        """Exchange a value.

        Args:
            value (object): this rank's.

        Returns:
            list: every rank's, in order.
        """
        if self.world_size == 1:
            return [value]
        values = [None] * self.world_size
        torch.distributed.all_gather_object(values, value)
        return values

    def verdict(self, problems):
        """Fail on every rank if any rank has something to complain of.

        Args:
            problems (List[str]): this rank's complaints.
        """
        said = self.everyone(list(problems))
        lines = [f"rank {rank}: {line}" if self.world_size > 1 else line for rank, own in enumerate(said) for line in own]
        if lines:
            violation = ContractViolation("\n".join(lines))
            # All ranks raise here, so their processes can go on with the next case.
            violation.in_step = True
            raise violation

    def require(self, condition, reason):
        """Leave the case unless a condition holds, which must be the same on every rank.

        Args:
            condition (object): the condition.
            reason (str): why the case does not apply otherwise.
        """
        if not condition:
            raise NotApplicable(reason)

    def write(self, files, name="checkpoint"):
        """Write a checkpoint that all ranks share.

        Args:
            files (CheckpointFiles): the checkpoint.
            name (str): a directory for it, below the case's.

        Returns:
            str: what to load.
        """
        path = files.write(os.path.join(self.directory, name)) if self.rank == 0 else None
        return self.everyone(path)[0]

    def files(self, saved, layout, shards=2):
        """Lay a state dict out as a checkpoint.

        Args:
            saved (dict): the state dict.
            layout (str): the layout.
            shards (int): number of shards.

        Returns:
            CheckpointFiles: not written yet.
        """
        return checkpoint_files.CheckpointFiles(saved, layout, shards)

    def saved(self, recipe=None, ids=None, seed=11, steps=3):
        """What a checkpoint of the whole model holds, made by torch alone.

        Args:
            recipe (Optional[Recipe]): see :func:`subjects.saved_natively`; by default the configuration's own, with
                learning rates that differ from those of :meth:`build`.
            ids (Optional[Tuple[int, ...]]): as there.
            seed (int): as there.
            steps (int): as there.

        Returns:
            dict: a state dict.
        """
        recipe = recipe or self.recipe()
        return saved_natively(recipe.with_rates(3), ids, seed, steps, self.state_dtype(recipe))

    def trained(self, seed=1, recipe=None, steps=2):
        """A subject whose optimizer has state for every parameter.

        Args:
            seed (int): seed of parameters and gradients.
            recipe (Optional[Recipe]): what to build.
            steps (int): number of steps.

        Returns:
            Subject: the subject.
        """
        subject = self.build(seed, recipe)
        for step in range(steps):
            subject.train(100 * seed + step, None)
        return subject

    def native_twin(self, subject, saved):
        """An optimizer that holds what the subject's must hold after loading, by torch's own loading.

        Args:
            subject (Subject): the subject, before it loads.
            saved (dict): a state dict with global ids and shapes.

        Returns:
            torch.optim.Optimizer: independent of the subject.
        """
        from .observation import frozen

        twin = twin_of(subject.inner)
        twin.load_state_dict(frozen(self.local_state(subject, saved)))
        return twin

    def load(self, subject, path, **options):
        """Load, on every rank.

        Args:
            subject (Subject): where to.
            path (str): what.
            options (Any): more arguments of ``load_optimizer``.

        Returns:
            Optional[Exception]: what was raised on this rank.
        """
        try:
            self.checkpoint_io().load_optimizer(subject.optimizer, path, **options)
        except Exception as error:
            return error
        return None

    def must_load(self, subject, path, **options):
        """Load what every rank must accept; the weights must not change.

        Args:
            subject (Subject): where to.
            path (str): what.
            options (Any): more arguments of ``load_optimizer``.
        """
        weights = subject.weights()
        error = self.load(subject, path, **options)
        problems = [] if error is None else [f"refused a good checkpoint: {type(error).__name__}: {error}"]
        self.verdict(problems + differences(weights, subject.weights(), "loading changed the "))

    def must_equal(self, subject, twin, step=True):
        """The subject's optimizer must hold what its twin holds, bit for bit, and take the same next step.

        Args:
            subject (Subject): the subject.
            twin (torch.optim.Optimizer): from :meth:`native_twin`.
            step (bool): whether to take the step.
        """
        found = differences(look_at(twin), look_at(subject.inner), "")
        self.verdict(found + loose_storages(subject.inner))
        if not step:
            return
        mine = subject.parameters
        others = [parameter for group in twin.param_groups for parameter in group["params"]]
        for parameters in (mine, others):
            give_gradients(parameters, torch.Generator().manual_seed(5 + self.rank))
        problems = []
        try:
            twin.step(*closure_for(twin))
            subject.inner.step(*closure_for(subject.inner))
        except Exception as error:
            problems.append(f"the next step failed: {type(error).__name__}: {error}")
        problems += differences(look_at(twin), look_at(subject.inner), "after the next step, ")
        problems += differences(
            [each.detach() for each in others], [each.detach() for each in mine], "after the next step, parameters"
        )
        self.verdict(problems)

    def must_replace(self, subject, saved, path, step=True, **options):
        """Load a good checkpoint, and check that it replaces the subject's state as native loading would.

        Args:
            subject (Subject): where to.
            saved (dict): what the checkpoint holds.
            path (str): the checkpoint.
            step (bool): whether to compare the next step too.
            options (Any): more arguments of ``load_optimizer``.
        """
        twin = self.native_twin(subject, saved)
        self.must_load(subject, path, **options)
        self.must_equal(subject, twin, step)

    def must_refuse(self, subject, path, mentions=(), ranks=(), kinds=(ValueError, RuntimeError), **options):
        """Load what every rank must refuse without any change, and check that a good checkpoint still loads.

        Args:
            subject (Subject): where to.
            path (str): what; it may differ from rank to rank.
            mentions (Iterable[object]): what the message must contain; a tuple of integers stands for a shape.
            ranks (Iterable[int]): ranks that the message must name.
            kinds (Tuple[type, ...]): exception types of which the error must be one.
            options (Any): more arguments of ``load_optimizer``.
        """
        before, weights = look_at(subject.inner), subject.weights()
        error = self.load(subject, path, **options)
        problems = differences(before, look_at(subject.inner), "after the refusal, ")
        problems += differences(weights, subject.weights(), "after the refusal, the ")
        if error is None:
            problems.insert(0, "a checkpoint that cannot be right was accepted")
        else:
            if not isinstance(error, kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                problems.append(f"raised {type(error).__name__}, which is no {wanted}: {error}")
            mentions = [*mentions, *(re.compile(rf"rank {rank}\b") for rank in ranks if self.world_size > 1)]
            problems += [f"the message does not mention {each}: {error}" for each in mentions if not told(error, each)]
        self.verdict(problems)
        self.good_load_works(subject)

    def good_load_works(self, subject):
        """Load a good checkpoint after a refusal.

        Args:
            subject (Subject): where to.
        """
        layout = self.layouts[0]
        saved = self.saved(subject.recipe, seed=23)
        path = self.write(self.files(saved, layout), "good")
        self.must_replace(subject, saved, path)


def told(error, wanted):
    """Whether a message says something.

    Args:
        error (Exception): the message.
        wanted (object): a text, a number, a compiled expression, or a shape.

    Returns:
        bool: whether it is there.
    """
    text = str(error)
    if isinstance(wanted, tuple):
        return re.search(r"[(\[]" + r",\s*".join(map(str, wanted)) + r",?[)\]]", text) is not None
    if isinstance(wanted, re.Pattern):
        return wanted.search(text) is not None
    if isinstance(wanted, int):
        return re.search(rf"(?<![\d.]){wanted}(?![\d.])", text) is not None
    return str(wanted) in text
