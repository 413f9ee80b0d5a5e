"""The only code that changes an optimizer: validate, agree, release, load, confirm.

Native ``Optimizer.load_state_dict`` does the replacing. It is handed a mapping that streams the shards, each tensor cut to
the part that this rank keeps, so casting, defaults, hooks and subclasses behave as the installed torch has them.
"""

import contextlib
import copy
import gc
import zlib
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from .agreement import agree
from .destination import Destination
from .errors import CheckpointLoadError, Problem, load_error
from .files.saved_state import SavedState, in_memory
from .validation import Plan, everything_in, validate

__all__ = ["restore"]

# Saved id, the parameter that it stands for on this rank (None for state of the optimizer as a whole), state.
Entry = Tuple[Any, Optional[torch.Tensor], Dict[str, Any]]

EMPTY = (
    "The optimizer's state is empty now, on every rank, and its parameter groups are as before. Load a good checkpoint "
    "before training goes on."
)


def restore(
    destination: Destination,
    open_saved: Callable[[], SavedState],
    group: Optional[ProcessGroup] = None,
    low_cpu_mem_mode: bool = True,
    num_threads: int = 1,
) -> None:
    """
    Replace an optimizer's state and parameter groups by saved ones, on every rank of a group or on none.

    Must be called on every rank of ``group``.

    Args:
        destination (Destination): The optimizer.
        open_saved (Callable[[], SavedState]): Opens the checkpoint. Called once; may raise.
        group (ProcessGroup, optional): The ranks that load together. Without one this rank is alone.
        low_cpu_mem_mode (bool, optional): Whether to stream the checkpoint. If False, this rank's part is read into host
            memory before the old state is released, so that reading cannot fail afterwards. Defaults to True.
        num_threads (int, optional): The number of threads that read if not ``low_cpu_mem_mode``. Defaults to 1.

    Raises:
        CheckpointMismatchError: If the checkpoint does not fit the optimizer of some rank. No rank's optimizer changed.
        CheckpointDamagedError: If some rank found the checkpoint damaged. The message says whether the optimizers are
            unchanged or, where reading failed after validation, empty. Every rank of ``group`` raises alike.
    """
    loading = _Loading(destination, low_cpu_mem_mode, num_threads)
    problems, cause = _attempt(lambda: loading.prepare(open_saved()))
    problems = agree(problems, group, loading.digest)
    if problems:
        raise load_error(problems) from cause
    try:
        problems, cause = _attempt(loading.load)
    except BaseException:
        loading.empty()
        raise
    problems = agree(problems, group)
    if problems:
        loading.empty()
        raise load_error(problems, EMPTY) from cause
    loading.fire_post_hooks()


def _attempt(action: Callable[[], None]) -> Tuple[List[Problem], Optional[Exception]]:
    try:
        with _collector_paused():
            action()
    except CheckpointLoadError as error:
        return error.problems, error.__cause__
    except Exception as error:
        return [Problem("{}: {}".format(type(error).__name__, error), damaged=True)], error
    return [], None


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    # A checkpoint of many parameters makes many containers, all of which stay. Walking them again and again to look for
    # cycles takes about as long as the load itself.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Loading:
    """
    One load into one optimizer on one rank.

    Args:
        destination (Destination): The optimizer.
        low_cpu_mem_mode (bool): See :func:`restore`.
        num_threads (int): See :func:`restore`.
    """

    def __init__(self, destination: Destination, low_cpu_mem_mode: bool, num_threads: int) -> None:
        self.destination = destination
        self.optimizer: Optimizer = destination.optimizer
        self.low_cpu_mem_mode = low_cpu_mem_mode
        self.num_threads = num_threads
        self.digest = 0
        self._groups: List[Dict[str, Any]] = []
        self._states: Iterable[Entry] = ()
        self._groups_before = self.optimizer.param_groups
        self._group_contents_before = [dict(group) for group in self.optimizer.param_groups]

    # ======================================
    # before anything changes
    # ======================================

    def prepare(self, saved: SavedState) -> None:
        """
        Validate, and read what has to be read in advance.

        Args:
            saved (SavedState): The opened checkpoint.

        Raises:
            CheckpointLoadError: With everything that is wrong.
        """
        self.digest = _digest(saved)
        plan = self._plan(self.destination.adapted(saved))
        self._groups = [{key: _owned(value, None, key) for key, value in group.items()} for group in plan.groups]
        hooks = list(_hooks_of(self.optimizer, "pre").values())
        if hooks:
            plan = self._hooked(hooks, plan)
            self._groups = plan.groups
            self._states = list(plan.states())
        elif not self.low_cpu_mem_mode or self._native_is_overridden():
            self._states = self._read_all(plan.states())
        else:
            taken = self.destination.taken_ids
            self._states = (
                (param_id, param, state if param_id in taken else _owned(state, self._cast_by_native(param), None))
                for param_id, param, state in plan.states()
            )

    def _plan(self, saved: SavedState) -> Plan:
        problems: List[Problem] = []
        plan = validate(saved, self.destination, problems)
        if _hooks_of(self.optimizer, "pre") and self.destination.by_position:
            # A hook may turn what does not fit into what fits, so all that counts yet is whether it can be read.
            problems = [problem for problem in problems if problem.damaged]
            if saved.groups is not None:
                plan = Plan(saved.groups, everything_in(saved.shards), saved.shards)
        if problems or plan is None:
            raise load_error(problems)
        return plan

    def _native_is_overridden(self) -> bool:
        method = self.optimizer.load_state_dict
        # ColossalAI's own optimizers hand on what they are given, and look at the loaded state only.
        handed_on = method.__module__.startswith("colossalai.nn.optimizer.")
        return not handed_on and getattr(method, "__func__", None) is not Optimizer.load_state_dict

    def _cast_by_native(self, param: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
        return param if param is not None and self.destination.state_dtype(param) == param.dtype else None

    def _read_all(self, states: Iterable[Entry]) -> List[Entry]:
        def read(entry: Entry) -> Entry:
            param_id, param, state = entry
            pinned = param is not None and param.device.type == "cuda"
            return param_id, param, _owned(state, None, None, pinned)

        with ThreadPoolExecutor(max_workers=max(1, self.num_threads)) as pool:
            return list(pool.map(read, states))

    def _hooked(self, hooks: List[Callable], plan: Plan) -> Plan:
        states = {param_id: state for param_id, _, state in self._read_all(plan.states())}
        state_dict: Dict[str, Any] = {"state": states, "param_groups": self._groups}
        for hook in hooks:
            result = hook(self.optimizer, state_dict)
            if result is not None:
                state_dict = result
        # A hook may have changed anything. What it made is shaped like this rank's own parameters.
        problems: List[Problem] = []
        source = "the state dict that the load_state_dict pre-hooks made"
        hooked = validate(in_memory(state_dict, source), self.destination.own_part(), problems)
        if problems or hooked is None:
            raise load_error(problems)
        return hooked

    # ======================================
    # the change
    # ======================================

    def load(self) -> None:
        """
        Release the old state, then let native code load the new one.

        Raises:
            Exception: Whatever native code, or reading, raises. The caller empties the optimizer then.
        """
        self.optimizer.state.clear()
        groups = _GroupList(dict(group, params=_IdList(group["params"])) for group in self._groups)
        stream = _Stream(self._states, self.destination, groups, self._native_is_overridden())
        self._states = ()
        # A subclass may look up states as it likes, so it gets a dictionary of them.
        states = dict(stream.items()) if stream.is_looked_into else stream
        with _hooks_held_back(self.optimizer):
            self.optimizer.load_state_dict({"state": states, "param_groups": groups})
        stream.release_kept()
        if self.destination.empty_is_absent:
            entries = list(self.optimizer.state.items())
            for param in [key for key, state in entries if isinstance(key, torch.Tensor) and not state]:
                del self.optimizer.state[param]

    def empty(self) -> None:
        """Leave no state, and the parameter groups as they were."""
        for group, content in zip(self._groups_before, self._group_contents_before):
            group.clear()
            group.update(content)
        self.optimizer.__dict__["param_groups"] = self._groups_before
        self.optimizer.state.clear()

    def fire_post_hooks(self) -> None:
        """Run the hooks that native loading runs after success, now that every rank has succeeded."""
        for hook in list(_hooks_of(self.optimizer, "post").values()):
            hook(self.optimizer)


# ======================================
# what native loading is handed
# ======================================


class _IdList(list):
    """Saved ids of a group. Native code asks for each state value whether its id is in the group."""

    def __init__(self, ids: Iterable[int]) -> None:
        super().__init__(ids)
        self._set = set(self)

    def __contains__(self, item: Any) -> bool:
        return item in self._set

    def __deepcopy__(self, memo: Dict[int, Any]) -> List[int]:
        return list(self)


class _GroupList(list):
    """
    Saved groups. Native code looks for the group of each state value from the first group on, so the one that it is about to
    look for comes first.
    """

    def __init__(self, groups: Iterable[Dict[str, Any]]) -> None:
        super().__init__(groups)
        self.sought: Any = None
        self._by_id = {param_id: group for group in list.__iter__(self) for param_id in group["params"]}

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        if self.sought in self._by_id:
            yield self._by_id[self.sought]
        yield from super().__iter__()

    def __deepcopy__(self, memo: Dict[int, Any]) -> List[Dict[str, Any]]:
        return [copy.deepcopy(group, memo) for group in list.__iter__(self)]


class _Kept:
    """A value that native code must leave as it is: texts, which it takes apart, and dtypes that it does not know of."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Text(str):
    """A text for a subclass to read, and for native code to take apart and put together as it does with containers."""

    def __new__(cls, parts: Iterable[Any]) -> str:
        return "".join(chr(part) if isinstance(part, int) else part for part in parts)

    @classmethod
    def of(cls, text: str) -> "_Text":
        return str.__new__(cls, text)

    def __iter__(self) -> Iterator[Any]:
        # Of a single character native code would ask for its characters again.
        return iter([ord(self)]) if len(self) == 1 else map(self.of, super().__iter__())


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _with_texts(item, change) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(_with_texts(item, change) for item in value)
    return value


class _Stream(dict):
    """
    States by id whose ``items()`` can be walked once.

    Args:
        states (Iterable): Saved id, parameter and state of each entry; owned by this load.
        destination (Destination): The optimizer.
        groups (_GroupList): The groups that native code is handed with them.
        is_looked_into (bool): Whether a subclass sees the states before native code does.
    """

    def __init__(
        self, states: Iterable[Entry], destination: Destination, groups: _GroupList, is_looked_into: bool
    ) -> None:
        super().__init__()
        self.is_looked_into = is_looked_into
        self._states = states
        self._destination = destination
        self._groups = groups
        self._kept: List[Tuple[torch.Tensor, str]] = []

    def items(self) -> Iterator[Tuple[Any, Dict[str, Any]]]:
        for param_id, param, state in self._states:
            if param is not None:
                dtype = self._destination.state_dtype(param)
                for key, value in state.items():
                    if dtype != param.dtype and isinstance(value, torch.Tensor) and key != "step":
                        state[key] = _Kept(value.to(device=param.device, dtype=dtype))
                    elif _holds_text(value):
                        state[key] = _with_texts(value, _Text.of) if self.is_looked_into else _Kept(value)
                    else:
                        continue
                    self._kept.append((param, key))
            self._groups.sought = param_id
            yield param_id, state
        self._groups.sought = None

    def release_kept(self) -> None:
        """Put the values that were kept from native code where it has put their wrappers."""
        for param, key in self._kept:
            state = self._destination.optimizer.state[param]
            if isinstance(state.get(key), _Kept):
                state[key] = state[key].value
            elif self.is_looked_into and key in state:
                state[key] = _with_texts(state[key], str)


def _holds_text(value: Any) -> bool:
    if isinstance(value, (str, bytes, bytearray)):
        return True
    if isinstance(value, dict):
        return any(_holds_text(item) for item in value.values())
    return isinstance(value, (list, tuple, set, frozenset)) and any(_holds_text(item) for item in value)


def _owned(value: Any, param: Optional[torch.Tensor], key: Any, pinned: bool = False) -> Any:
    # Copies what native code would otherwise keep, so that nothing aliases the checkpoint afterwards. Where native code
    # casts or moves a tensor it makes that copy itself.
    if isinstance(value, torch.Tensor):
        if (
            param is not None
            and key != "step"
            and (value.device != param.device or (param.is_floating_point() and value.dtype != param.dtype))
        ):
            return value
        value = value.detach()
        return value.pin_memory() if pinned and value.device.type == "cpu" else value.clone()
    if isinstance(value, dict):
        return {name: _owned(item, param, name, pinned) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_owned(item, param, None, pinned) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _hooks_of(optimizer: Optimizer, when: str) -> "OrderedDict[int, Callable]":
    return getattr(optimizer, "_optimizer_load_state_dict_{}_hooks".format(when), OrderedDict())


@contextlib.contextmanager
def _hooks_held_back(optimizer: Optimizer) -> Iterator[None]:
    # Pre-hooks have run by now, before anything changed; post-hooks wait for the other ranks.
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


def _digest(saved: SavedState) -> int:
    index = sorted((str(param_id), path.rsplit("/", 1)[-1]) for param_id, path in (saved.index or {}).items())
    return zlib.crc32(repr((index, _comparable(saved.groups))).encode())


def _comparable(value: Any) -> Any:
    # Alike on all ranks for what is equal: no order of a set, no address of an object, no device of a tensor.
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().cpu().tolist()
    if isinstance(value, dict):
        return [(key, _comparable(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted(repr(_comparable(item)) for item in value)
    if isinstance(value, (list, tuple)):
        return [_comparable(item) for item in value]
    return type(value).__name__ if callable(value) or type(value).__repr__ is object.__repr__ else repr(value)
