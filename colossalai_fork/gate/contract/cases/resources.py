"""Contract points 5, 6, 7, 9 and 10: memory, bytes read, time, no accelerator, no training."""

import collections
import os

import pytest
import torch

from ...cpu import stand_in
from ..base import ContractBase, case
from ..checkpoint_files import is_sharded
from ..comparison import differences
from ..counting import bytes_read, calls_of, openings_of, searches
from ..memory_watch import MIB, MemoryWatch, give_freed_memory_back
from ..needs import LINUX, LOADS_SHARDS, Need
from ..subjects import Recipe

KEEPS_A_PART = Need("the rank keeps all of it", lambda contract, _: contract.cuts and contract.world_size > 1)
ONE_PROCESS = Need(
    "it is counted on one process, which has all parameters as well", lambda contract, _: contract.world_size == 1
)
LINEAR = Need("the optimizer itself does more than that", lambda contract, _: contract.linear_in_parameters)


class ResourceCases(ContractBase):
    """What loading may cost and touch."""

    def _large(self, shards: int = 5, elements: int = 2**21) -> tuple[Recipe, int, int]:
        give_freed_memory_back()
        recipe = self.recipe(
            optimizer="SGD",
            options={"momentum": 0.9},
            shapes=((elements,),) * shards,
            groups=(tuple(range(shards)),),
            rates=(0.01,),
        )
        return recipe, shards * elements * 4, elements * 4

    @case(5, rows=(30,), needs=[LINUX, LOADS_SHARDS])
    def test_at_most_one_shard_of_extra_memory(self) -> None:
        recipe, total, per_shard = self._large()
        subject = self.trained(recipe=recipe, steps=1)
        saved = self.saved(recipe, steps=1)
        path = self.write(self.files(saved, "torch-sharded", shards=5))
        del saved
        with MemoryWatch() as watch:
            error = self.load(subject, path)
        self.verdict([] if error is None else [f"refused a good checkpoint: {error}"])
        # The destination held as much before; a little is the interpreter's own.
        allowed = per_shard + MIB
        self.verdict([] if watch.anonymous <= allowed else [f"{watch.anonymous} extra bytes, {allowed} allowed"])

    @case(6, needs=[LINUX, KEEPS_A_PART])
    def test_reads_its_own_part_only(self) -> None:
        recipe, total, _ = self._large(shards=2, elements=2**22)
        subject = self.trained(recipe=recipe, steps=1)
        saved = self.saved(recipe, steps=1)
        path = self.write(self.files(saved, "torch-sharded", shards=2))
        self.everyone(None)
        before = bytes_read()
        with MemoryWatch() as watch:
            error = self.load(subject, path)
        touched = bytes_read() - before
        self.verdict([] if error is None else [f"refused a good checkpoint: {error}"])
        own = total // self.world_size
        # Index, groups, a page at both ends of what is read, and modules that are imported on first use.
        self.verdict([] if touched <= own + 2 * MIB else [f"{touched} bytes were read of a part of {own}"])
        # The kernel maps file pages in clusters of up to 2 MiB, at both ends of a slice in each of the two files.
        self.verdict([] if watch.mapped <= own + 8 * MIB else [f"{watch.mapped} bytes were mapped of a part of {own}"])

    @case(6, rows=(30,))
    def test_opens_each_shard_once(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout, shards=4)
        path = self.write(files)
        names = list(files.shards) if is_sharded(layout) else [files.one_file_name]
        opened = collections.Counter()
        for file, count in openings_of(lambda: self.load(subject, path)).items():
            opened[os.path.basename(file)] += count
        several = {name: opened.get(name, 0) for name in names if opened.get(name, 0) > 1}
        self.verdict([f"opened more than once for reading: {several}"] if several else [])

    @case(7, deadline=120.0, needs=[ONE_PROCESS, LINEAR])
    def test_work_grows_linearly(self) -> None:
        works = []
        for count in (300, 2400):
            recipe = self.recipe(
                optimizer="SGD",
                options={"momentum": 0.9},
                shapes=((2,),) * count,
                groups=(tuple(range(count)),),
                rates=(0.01,),
            )
            subject = self.build(recipe=recipe)
            saved = self.saved(recipe, steps=1)
            path = self.write(self.files(saved, "torch-sharded", shards=4), f"of-{count}")
            with searches() as searched:
                calls, error = calls_of(lambda: self.load(subject, path))
            works.append(calls + searched[0])
            self.verdict([] if error is None else [f"refused a good checkpoint: {error}"])
        # Eight times the parameters: 8 is linear and 64 is quadratic.
        self.verdict(
            [] if works[1] < 9 * works[0] else [f"eight times the parameters, but calls and searches: {works}"]
        )

    @case(9)
    def test_no_accelerator_is_asked_for(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        path = self.write(self.files(saved, layout))
        twin = self.native_twin(subject, saved)
        with stand_in.without_stand_ins():
            error = self.load(subject, path)
        self.verdict([] if error is None else [f"without stand-ins for CUDA: {type(error).__name__}: {error}"])
        self.must_equal(subject, twin)

    @case(9)
    def test_no_pinned_memory_is_asked_for(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        path = self.write(self.files(saved, layout))
        twin = self.native_twin(subject, saved)
        with stand_in.without_stand_ins():
            error = self.load(subject, path, low_cpu_mem_mode=False)
        self.verdict([] if error is None else [f"without stand-ins for CUDA: {type(error).__name__}: {error}"])
        self.must_equal(subject, twin)

    @pytest.mark.parametrize("outcome", ["loads", "refuses"])
    @case(10, rows=(29,))
    def test_loading_never_trains(self, layout: str, outcome: str) -> None:
        subject = self.trained()
        saved = self.saved()
        if outcome == "refuses":
            saved["state"][0]["exp_avg"] = torch.ones(99)
        path = self.write(self.files(saved, layout))
        steps = []
        subject.inner.register_step_pre_hook(lambda *arguments: steps.append(1))
        scaler = _scaler_state(subject.optimizer)
        weights = subject.weights()
        error = self.load(subject, path)
        problems = [] if (error is None) == (outcome == "loads") else [f"expected that it {outcome}: {error!r}"]
        problems += ["loading took a step"] if steps else []
        problems += [] if scaler == _scaler_state(subject.optimizer) else ["loading changed the gradient scaler"]
        self.verdict(problems + differences(weights, subject.weights(), "loading changed the "))


def _scaler_state(optimizer: object) -> dict[str, float] | None:
    # ZeRO, Gemini and what steps copies in float32 each have their own name for it.
    names = ("mixed_precision_mixin", "mix_precision_mixin", "mixed_precision")
    mixins = (getattr(optimizer, name, None) for name in names)
    scaler = next((mixin.grad_scaler for mixin in mixins if hasattr(mixin, "grad_scaler")), None)
    return None if scaler is None else {key: float(value) for key, value in scaler.state_dict().items()}
