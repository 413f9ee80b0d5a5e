"""Contract points 3 and 4: loading that fails or is interrupted half-way leaves old or empty state, on every rank."""

import contextlib
import os
import shutil
from typing import Any, Callable, Collection, Iterator, NoReturn

import pytest
import torch

from ..base import ContractBase, case
from ..checkpoint_files import truncate
from ..comparison import differences, look_at
from ..needs import FIRES_HOOKS, LOADS_TOGETHER
from ..subjects import Subject


class FailingCases(ContractBase):
    """Failures after validation, and interrupts."""

    @contextlib.contextmanager
    def at_the_first_value(self, action: Callable[[], object]) -> Iterator[list[bool]]:
        """Do something as soon as torch's own loading takes the first value of a state.

        Args:
            action (Callable[[], object]): what to do.

        Yields:
            List[bool]: gets an element when that happens.
        """
        method = torch.optim.Optimizer._process_value_according_to_param_policy
        done = []

        def process(*arguments: Any, **options: Any) -> Any:
            if not done:
                done.append(True)
                action()
            return method(*arguments, **options)

        torch.optim.Optimizer._process_value_according_to_param_policy = staticmethod(process)
        try:
            yield done
        finally:
            torch.optim.Optimizer._process_value_according_to_param_policy = staticmethod(method)

    def _checkpoint_to_spoil(self, layout: str) -> tuple[Subject, dict[str, Any], str, list[str]]:
        # So large that not all of it is in memory as the first value is taken.
        recipe = self.recipe(shapes=((2**16,),) * 4, groups=((0, 1), (2, 3)), rates=(0.01, 0.02))
        subject, saved = self.trained(recipe=recipe), self.saved(recipe)
        path = self.write(self.files(saved, layout, shards=4))
        own = os.path.join(self.directory, f"of-rank-{self.rank}")
        shutil.copytree(os.path.join(self.directory, "checkpoint"), own)
        files = [os.path.join(own, name) for name in os.listdir(own)]
        return subject, saved, path.replace(os.path.join(self.directory, "checkpoint"), own), files

    def _fails(
        self,
        subject: Subject,
        path: str,
        ranks: Collection[int],
        action: Callable[[], object],
        says: str = "",
        **options: Any,
    ) -> tuple[BaseException | None, dict[str, Any], dict[str, object]]:
        before, weights = look_at(subject.inner), subject.weights()
        context = self.at_the_first_value(action) if self.rank in ranks else contextlib.nullcontext([True])
        with context as happened:
            error = self.load(subject, path, **options)
        self.require(all(self.everyone(bool(happened))), "the class does not load through torch")
        return error, before, weights

    def old_or_empty(
        self,
        subject: Subject,
        error: BaseException | None,
        before: dict[str, Any],
        weights: dict[str, object],
        kinds: type[BaseException] = RuntimeError,
    ) -> None:
        """Check that a load has failed, and what it has left.

        Args:
            subject (Subject): where to.
            error (Optional[BaseException]): what was raised on this rank.
            before (dict): what the optimizer held.
            weights (dict): what must not change.
            kinds (type): the type of the exception.
        """
        problems = []
        if error is None:
            problems.append("loading failed, and nothing was raised")
        elif not isinstance(error, kinds):
            problems.append(f"raised {type(error).__name__}, which is no {kinds.__name__}: {error}")
        # What native code fills into the defaults is no state, and harms nobody.
        now = {**look_at(subject.inner), "defaults": before["defaults"]}
        empty = {**before, "state": {}, "other state": {}}
        left = differences(before, now, "")
        if left and differences(empty, now, ""):
            problems += ["what is left is neither the old state nor none", *differences(empty, now, "")]
        self.verdict(problems + differences(weights, subject.weights(), "loading changed the "))

    @pytest.mark.parametrize("failing", ["first", "last"])
    @case(4, 3, rows=(24,), deadline=30.0)
    def test_files_fail_while_they_are_read(self, layout: str, failing: str) -> None:
        subject, saved, path, files = self._checkpoint_to_spoil(layout)
        bad_rank = 0 if failing == "first" else self.world_size - 1
        spoil = lambda: [truncate(file, 10) for file in files]  # noqa: E731
        error, before, weights = self._fails(subject, path, (bad_rank,), spoil)
        if all(self.everyone(error is None)):
            # All had been read by then.
            self.verdict(differences(look_at(self.native_twin(subject, saved)), look_at(subject.inner), ""))
        else:
            self.old_or_empty(subject, error, before, weights)
        self.good_load_works(subject)

    @case(4, rows=(24,), deadline=30.0)
    def test_what_is_read_beforehand_cannot_fail(self, layout: str) -> None:
        subject, saved, path, files = self._checkpoint_to_spoil(layout)
        twin = self.native_twin(subject, saved)
        spoil = lambda: [truncate(file, 10) for file in files]  # noqa: E731
        everyone = range(self.world_size)
        error, *_ = self._fails(subject, path, everyone, spoil, low_cpu_mem_mode=False, num_threads=2)
        self.verdict([] if error is None else [f"files were read after the first value was loaded: {error!r}"])
        self.must_equal(subject, twin)

    def _failing_optimizer(self, failure: BaseException, failing: str) -> tuple[Subject, dict[str, Any], bool]:
        recipe = self.recipe(optimizer="FailsWhileLoading")
        subject, saved = self.trained(recipe=recipe), self.saved(recipe)
        bad_rank = 0 if failing == "first" else self.world_size - 1
        subject.inner.fails = failure if self.rank == bad_rank else None
        return subject, saved, self.rank == bad_rank

    @pytest.mark.parametrize("failing", ["first", "last"])
    @case(4, 3, rows=(24,), deadline=30.0, needs=[FIRES_HOOKS])
    def test_interrupt_while_loading(self, layout: str, failing: str) -> None:
        subject, saved, is_bad = self._failing_optimizer(KeyboardInterrupt(), failing)
        path = self.write(self.files(saved, layout))
        before, weights = look_at(subject.inner), subject.weights()
        error = self.load(subject, path)
        subject.inner.fails = None
        kinds = KeyboardInterrupt if is_bad or not self.distributed else RuntimeError
        self.old_or_empty(subject, error, before, weights, kinds)
        twin = self.native_twin(subject, saved)
        self.must_load(subject, path)
        self.must_equal(subject, twin)

    @pytest.mark.parametrize("failing", ["first", "last"])
    @case(2, 3, 4, rows=(24,), deadline=30.0, needs=[FIRES_HOOKS])
    def test_interrupt_before_loading(self, layout: str, failing: str) -> None:
        subject = self.trained()
        path = self.write(self.files(self.saved(), layout))
        bad_rank = 0 if failing == "first" else self.world_size - 1
        before = look_at(subject.inner)

        def interrupt(*arguments: object) -> NoReturn:
            raise KeyboardInterrupt

        hook = subject.inner.register_load_state_dict_pre_hook(interrupt) if self.rank == bad_rank else None
        error = self.load(subject, path)
        problems = differences(before, look_at(subject.inner), "after the interrupt, ")
        if self.rank == bad_rank:
            hook.remove()
            kind = KeyboardInterrupt
        else:
            kind = RuntimeError
        if not isinstance(error, kind):
            problems.append(f"raised {error!r} where {kind.__name__} was due")
        self.verdict(problems)
        self.good_load_works(subject)

    @case(3, 4, rows=(24,), deadline=30.0, needs=[LOADS_TOGETHER])
    def test_interrupted_rank_that_begins_again(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        path = self.write(self.files(saved, layout))
        before, weights = look_at(subject.inner), subject.weights()
        last, interrupted = self.rank == self.world_size - 1, []
        all_reduce = torch.distributed.all_reduce

        def reduce_and_interrupt(*arguments: Any, **options: Any) -> NoReturn:
            all_reduce(*arguments, **options)
            interrupted.append(True)
            raise KeyboardInterrupt

        if last:
            torch.distributed.all_reduce = reduce_and_interrupt
        try:
            error = self.load(subject, path)
        finally:
            torch.distributed.all_reduce = all_reduce
        if interrupted and isinstance(error, KeyboardInterrupt):
            error = self.load(subject, path)
        self.require(any(self.everyone(bool(interrupted))), "the ranks agree in another way")
        self.old_or_empty(subject, error, before, weights)
        self.good_load_works(subject)

    @case(1, 3, rows=(28,), deadline=30.0, needs=[LOADS_TOGETHER, FIRES_HOOKS])
    def test_no_post_hook_where_another_rank_fails(self, layout: str) -> None:
        subject, saved, _ = self._failing_optimizer(RuntimeError("the device is out of memory"), "last")
        calls = []
        subject.inner.register_load_state_dict_post_hook(lambda *arguments: calls.append("post"))
        error = self.load(subject, self.write(self.files(saved, layout)))
        problems = ["loading failed on a rank, and nothing was raised"] if error is None else []
        self.verdict(problems + (["a post hook fired, though the load failed on another rank"] if calls else []))
