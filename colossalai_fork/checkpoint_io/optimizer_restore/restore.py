"""The only code that changes an optimizer: open, validate, agree, release, load, agree.

Native ``Optimizer.load_state_dict`` does the replacing. It is handed states that are read as it asks for them, each tensor
already this rank's part and owned by this load, so casting, defaults, hooks and subclasses behave as the installed torch
has them.
"""

import contextlib
from collections import OrderedDict, defaultdict
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from .agreement import LOADED, VALIDATED, AgreementError, agree, fingerprint
from .containers import mapped, owned_leaf
from .destination import Destination
from .errors import CheckpointLoadError, Problem, load_error
from .files.saved_state import SavedState, in_memory
from .own_layout import GroupsBefore, OwnLayout, has_own_layout, overrides_loading
from .plan import Entry, Plan, everything_in
from .streamed_state import StreamedState
from .validation import validate

__all__ = ["restore"]

EMPTY = (
    "The optimizer's state is empty now, on every rank, and its parameter groups are as before. Load a good checkpoint "
    "before training goes on."
)


def restore(
    destination: Destination,
    open_saved: Callable[[], SavedState],
    low_cpu_mem_mode: bool = True,
    num_threads: int = 1,
) -> None:
    """
    Replace an optimizer's state and parameter groups by saved ones, on every rank or on none.

    Must be called on every rank of ``destination.ranks``.

    Args:
        destination (Destination): The optimizer, and the ranks that load together.
        open_saved (Callable[[], SavedState]): Opens the checkpoint. Called once; may raise.
        low_cpu_mem_mode (bool, optional): Whether to stream the checkpoint. If False, this rank's part is read into host
            memory before the old state is released, so that reading cannot fail afterwards. Defaults to True.
        num_threads (int, optional): The number of threads that read if not ``low_cpu_mem_mode``. Defaults to 1.

    Raises:
        CheckpointMismatchError: If the checkpoint does not fit the optimizer of some rank. No rank's optimizer changed.
        CheckpointDamagedError: If some rank found the checkpoint damaged, was interrupted, or has ended. The message says
            whether the optimizers are unchanged or, where reading failed after validation, empty. Every rank raises alike.
    """
    loading, failure = _tried(lambda: _prepared(destination, open_saved(), low_cpu_mem_mode, num_threads))
    try:
        _agreed(failure, VALIDATED, destination.ranks, digest=0 if loading is None else loading.digest)
        try:
            _, failure = _tried(loading.load)
            _agreed(failure, LOADED, destination.ranks, outcome=loading.undone)
        except BaseException:
            loading.undo()
            raise
        loading.finish()
    finally:
        if loading is not None:
            loading.close()


def _tried(step: Callable[[], Any]) -> Tuple[Any, Optional[BaseException]]:
    # An interrupt, too, has to wait until the other ranks know of it.
    try:
        return step(), None
    except BaseException as error:
        return None, error


def _agreed(
    failure: Optional[BaseException],
    point: int,
    ranks: Optional[ProcessGroup],
    digest: int = 0,
    outcome: Optional[str] = None,
) -> None:
    problems: List[Problem] = []
    cause = failure
    if isinstance(failure, CheckpointLoadError):
        problems, cause = failure.problems, failure.__cause__
    elif failure is not None:
        problems = [Problem("{}: {}".format(type(failure).__name__, failure), damaged=True)]
    try:
        problems = agree(problems, point, ranks, digest)
    except AgreementError as error:
        problems.append(error.problem)
        cause = cause or error.__cause__
    if failure is not None and not isinstance(failure, Exception):
        raise failure
    if problems:
        raise load_error(problems, outcome) from cause


def _prepared(destination: Destination, saved: SavedState, low_cpu_mem_mode: bool, num_threads: int) -> Any:
    try:
        return _validated(destination, saved, low_cpu_mem_mode, num_threads)
    except BaseException:
        saved.close()
        raise


def _validated(destination: Destination, saved: SavedState, low_cpu_mem_mode: bool, num_threads: int) -> Any:
    opened = saved
    digest = fingerprint((_index_of(saved), saved.groups, saved.content))
    if has_own_layout(destination, saved):
        return OwnLayout(destination, saved, digest)
    saved = destination.adapted(saved)
    problems: List[Problem] = []
    plan = validate(saved, destination, problems)
    hooks = list(_hooks_of(destination.optimizer, "pre").values())
    if hooks and destination.by_position:
        # A hook may turn what does not fit into what fits, so all that counts yet is whether it can be read.
        problems = [problem for problem in problems if problem.damaged]
        if saved.groups is not None:
            plan = Plan(saved.groups, everything_in(saved.shards), saved.shards, saved.extra)
    if problems or plan is None:
        if has_own_layout(destination, saved, problems):
            return OwnLayout(destination, saved, digest)
        raise load_error(problems)
    if hooks:
        plan = _hooked(destination, hooks, plan)
    whole = bool(hooks) or not low_cpu_mem_mode or overrides_loading(destination.optimizer)
    entries: Iterable[Entry] = list(plan.entries(max(1, num_threads))) if whole else plan.entries()
    return _Loading(destination, plan, entries, digest, opened.close)


def _hooked(destination: Destination, hooks: List[Callable], plan: Plan) -> Plan:
    states = {entry.param_id: entry.state for entry in plan.entries()}
    state_dict: Dict[str, Any] = {**plan.extra, "state": states, "param_groups": plan.groups}
    for hook in hooks:
        result = hook(destination.optimizer, state_dict)
        if result is not None:
            state_dict = result
    # A hook may have changed anything. What it made is shaped like this rank's own parameters.
    problems: List[Problem] = []
    source = "the state dict that the load_state_dict pre-hooks made"
    hooked = validate(in_memory(state_dict, source), destination.for_local_state(), problems)
    if problems or hooked is None:
        raise load_error(problems)
    return hooked


def _index_of(saved: SavedState) -> List[Tuple[str, str]]:
    return sorted((str(param_id), path.rsplit("/", 1)[-1]) for param_id, path in (saved.index or {}).items())


def _hooks_of(optimizer: Any, when: str) -> "OrderedDict[int, Callable]":
    return getattr(optimizer, "_optimizer_load_state_dict_{}_hooks".format(when), OrderedDict())


@contextlib.contextmanager
def _hooks_held_back(optimizer: Any) -> Iterator[None]:
    # Pre-hooks have run by now, before anything changed; post-hooks wait for the other ranks. Native code has no switch for
    # that.
    held = {}
    for when in ("pre", "post"):
        name = "_optimizer_load_state_dict_{}_hooks".format(when)
        if name in optimizer.__dict__:
            held[name] = optimizer.__dict__[name]
            optimizer.__dict__[name] = OrderedDict()
    try:
        yield
    finally:
        optimizer.__dict__.update(held)


class _Loading:
    """
    A validated load, through native code.

    Args:
        destination (Destination): The optimizer.
        plan (Plan): What goes where.
        entries (Iterable[Entry]): This rank's states, read already or read as they are asked for.
        digest (int): What the ranks compare.
        close (Callable[[], None]): Closes the checkpoint's files.
    """

    undone = EMPTY

    def __init__(
        self,
        destination: Destination,
        plan: Plan,
        entries: Iterable[Entry],
        digest: int,
        close: Callable[[], None],
    ) -> None:
        self.close = close
        self.destination = destination
        self.optimizer: Optimizer = destination.optimizer
        self.plan = plan
        self.digest = digest
        self._entries = entries
        self._groups_before = GroupsBefore(self.optimizer)
        self._state_before = self.optimizer.state

    def load(self) -> None:
        """
        Release the old state, then let native code load the new one.

        Raises:
            Exception: Whatever native code, or reading, raises. The caller undoes the load then.
        """
        self._release()
        # A state dict in memory is somebody else's.
        groups = [mapped(group, owned_leaf) for group in self.plan.groups]
        streamed = StreamedState(self._entries, self.destination, groups)
        self._entries = ()
        states = dict(streamed.items()) if overrides_loading(self.optimizer) else streamed
        with _hooks_held_back(self.optimizer):
            self.optimizer.load_state_dict({**self.plan.extra, "state": states, "param_groups": groups})
        streamed.put_back()
        if self.destination.empty_is_absent:
            entries = list(self.optimizer.state.items())
            for param in [key for key, state in entries if isinstance(key, torch.Tensor) and not state]:
                del self.optimizer.state[param]
        if self.destination.adds:
            self._state_before.update(self.optimizer.state)
            self.optimizer.state = self._state_before
            self._groups_before.put_back()

    def _release(self) -> None:
        if not self.destination.adds:
            self.optimizer.state.clear()
            return
        for param, _ in self.plan.targets.values():
            self._state_before.pop(param, None)
        self.optimizer.state = defaultdict(dict)
        self.optimizer.param_groups = self.destination.param_groups

    def undo(self) -> None:
        """Leave no state, and the parameter groups as they were."""
        self.optimizer.state.clear()
        self._state_before.clear()
        self._groups_before.put_back()

    def finish(self) -> None:
        """Run the hooks that native loading runs after success, now that every rank has succeeded."""
        for hook in list(_hooks_of(self.optimizer, "post").values()):
            hook(self.optimizer)
