"""Contract point 3: one rank that cannot load keeps all ranks from loading, and nobody waits for ever."""

import os
import shutil
from typing import Any

import pytest
import torch

from ..base import ContractBase, case
from ..checkpoint_files import GROUP_FILE, is_sharded, truncate
from ..comparison import differences
from ..needs import FIRES_HOOKS, LOADS_TOGETHER
from ..subjects import Subject

#: What goes wrong on one rank only.
FAULTS = ("missing shard", "short shard", "no directory", "other groups", "a shape")
#: What can be missing of a checkpoint that is not one file.
FAULTS_OF_DIRECTORIES = ("missing index", "missing group file")


class RankCases(ContractBase):
    """A rank that sees other files than its peers, as on a node whose disk is full or out of date."""

    @pytest.mark.parametrize("failing", ["first", "last"])
    @pytest.mark.parametrize("fault", FAULTS)
    @case(3, rows=(24,), deadline=30.0, needs=[LOADS_TOGETHER])
    def test_one_rank_fails(self, layout: str, fault: str, failing: str) -> None:
        self._one_rank_fails(layout, fault, failing)

    @pytest.mark.parametrize("failing", ["first", "last"])
    @pytest.mark.parametrize("fault", FAULTS_OF_DIRECTORIES)
    @case(3, rows=(24,), deadline=30.0, layouts=is_sharded, needs=[LOADS_TOGETHER])
    def test_one_rank_lacks_a_file(self, layout: str, fault: str, failing: str) -> None:
        self._one_rank_fails(layout, fault, failing)

    def _one_rank_fails(self, layout: str, fault: str, failing: str) -> None:
        subject = self.trained()
        path = self.write(self.files(self.saved(), layout))
        bad_rank = 0 if failing == "first" else self.world_size - 1
        mentions = []
        if self.rank == bad_rank:
            path, mentions = self._spoilt_copy(path, layout, fault)
        mentions = self.everyone(mentions)[bad_rank]
        self.must_refuse(subject, path, mentions, ranks=(bad_rank,))

    def _spoilt_copy(self, path: str, layout: str, fault: str) -> tuple[str, list[object]]:
        files = self.files(self.saved(), layout)
        directory = os.path.join(self.directory, f"of-rank-{self.rank}")
        if fault == "other groups":
            files.groups = [*files.groups, dict(files.groups[0], params=[])]
        if fault == "a shape":
            files.states[self.spoilt_id(0)]["exp_avg"] = torch.ones(99)
        own = files.write(directory)
        shard = os.path.join(directory, files.name_of(self.spoilt_id(3)))
        if fault == "missing shard":
            os.remove(shard)
        elif fault == "short shard":
            truncate(shard, 100)
        elif fault == "missing index":
            os.remove(os.path.join(directory, files.index_name))
        elif fault == "missing group file":
            os.remove(os.path.join(directory, GROUP_FILE))
        elif fault == "no directory":
            shutil.rmtree(directory)
        mention = {
            "missing shard": os.path.basename(shard),
            "short shard": os.path.basename(shard),
            "missing index": os.path.basename(directory),
            "missing group file": GROUP_FILE,
            "no directory": os.path.basename(directory),
            "other groups": "group",
            "a shape": (99,),
        }[fault]
        return own, [mention]

    def spoilt_id(self, param_id: int) -> int:
        """Choose the parameter whose state, or file, the failing rank finds spoilt.

        Args:
            param_id (int): the one to choose if this rank holds a part of it.

        Returns:
            int: one that this rank has to read.
        """
        return param_id

    @case(3, rows=(24,), deadline=30.0, needs=[LOADS_TOGETHER])
    def test_ranks_that_see_different_checkpoints(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        # Sound on each rank, but a save that had not reached every node yet.
        other = dict(saved, param_groups=[dict(group, lr=group["lr"] * 2) for group in saved["param_groups"]])
        path = self.write(self.files(saved, layout), "new")
        old_path = self.write(self.files(other, layout), "old")
        self.must_refuse(subject, path if self.rank == 0 else old_path)

    @case(3, rows=(24,), deadline=30.0, layouts=is_sharded, needs=[LOADS_TOGETHER])
    def test_ranks_that_see_different_indexes(self, layout: str) -> None:
        subject = self.trained()
        # Both sound, and with the same groups: two saves of one run.
        path = self.write(self.files(self.saved(), layout, shards=2), "new")
        old_path = self.write(self.files(self.saved(steps=2), layout, shards=4), "old")
        self.must_refuse(subject, path if self.rank == 0 else old_path)

    @pytest.mark.parametrize("failing", ["first", "last"])
    @case(4, 3, deadline=30.0, needs=[FIRES_HOOKS])
    def test_loading_fails_after_validation(self, layout: str, failing: str) -> None:
        recipe = self.recipe(optimizer="FailsWhileLoading")
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe)
        path = self.write(self.files(saved, layout))
        groups = [{**group, "params": len(group["params"])} for group in subject.inner.param_groups]
        weights = subject.weights()
        bad_rank = 0 if failing == "first" else self.world_size - 1
        subject.inner.fails = RuntimeError("the device is out of memory") if self.rank == bad_rank else None
        error = self.load(subject, path)
        subject.inner.fails = None
        self.verdict(self._left_empty(subject, error, groups, weights))
        twin = self.native_twin(subject, saved)
        self.must_load(subject, path)
        self.must_equal(subject, twin)

    def _left_empty(
        self, subject: Subject, error: BaseException | None, groups: list[dict[str, Any]], weights: dict[str, object]
    ) -> list[str]:
        problems = []
        if error is None:
            problems.append("loading failed, and nothing was raised")
        elif not isinstance(error, RuntimeError):
            problems.append(f"raised {type(error).__name__}, which is no RuntimeError: {error}")
        elif "out of memory" not in str(error):
            problems.append(f"the message does not say what failed: {error}")
        elif self.distributed and "empty" not in str(error):
            problems.append(f"the message does not say that the state is empty now: {error}")
        if len(subject.inner.state):
            problems.append(f"{len(subject.inner.state)} entries of state are left, neither old nor new")
        now = [{**group, "params": len(group["params"])} for group in subject.inner.param_groups]
        problems += differences(groups, now, "parameter groups")
        return problems + differences(weights, subject.weights(), "loading changed the ")

    @case(4, needs=[FIRES_HOOKS])
    def test_old_state_is_released_first(self, layout: str) -> None:
        recipe = self.recipe(optimizer="WatchesItsState")
        subject = self.trained(recipe=recipe)
        saved = self.saved(recipe)
        path = self.write(self.files(saved, layout))
        subject.inner.watch()
        self.must_load(subject, path)
        alive = subject.inner.still_alive
        self.verdict(
            [] if alive == 0 else [f"{alive} tensors of the old state were alive when the new state was loaded"]
        )
