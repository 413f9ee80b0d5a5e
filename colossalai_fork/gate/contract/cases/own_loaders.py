"""Contract point 1 for loaders of one's own that are made of ColossalAI's two helper functions."""

import os
from typing import Any

import torch

from ..base import ContractBase, case
from ..checkpoint_files import GROUP_FILE, is_torch
from ..comparison import differences, look_at
from ..subjects import Subject


def is_torch_sharded(layout: str) -> bool:
    """Whether the layout is a directory of torch files.

    Args:
        layout (str): a layout.

    Returns:
        bool: whether it is.
    """
    return is_torch(layout) and layout.endswith("-sharded")


class OwnLoaderCases(ContractBase):
    """First ``load_param_groups_into_optimizer``, then ``load_states_into_optimizer`` shard by shard."""

    def load_shards(self, subject: Subject, path: str, **options: Any) -> None:
        """Load as a loader of one's own does.

        Args:
            subject (Subject): where to.
            path (str): the directory.
            options (Any): more arguments of ``load_states_into_optimizer``.
        """
        from colossalai.checkpoint_io.utils import load_param_groups_into_optimizer, load_states_into_optimizer

        id_map = load_param_groups_into_optimizer(subject.inner, os.path.join(path, GROUP_FILE))
        for name in sorted(os.listdir(path)):
            if name.startswith("pytorch_optim-"):
                states = torch.load(os.path.join(path, name), weights_only=True)
                load_states_into_optimizer(subject.inner, states, id_map, **options)

    def must_load_shards(self, subject: Subject, path: str, **options: Any) -> None:
        """Load a good checkpoint as a loader of one's own does.

        Args:
            subject (Subject): where to.
            path (str): the directory.
            options (Any): more arguments of ``load_states_into_optimizer``.
        """
        error = self.tried(self.load_shards, subject, path, **options)
        self.verdict([] if error is None else [f"refused a good checkpoint: {error}"])

    @case(1, rows=(1, 4), layouts=is_torch_sharded)
    def test_shard_after_shard(self, layout: str) -> None:
        subject, saved = self.trained(), self.saved(ids=(0, 2, 3))
        path = self.write(self.files(saved, layout, shards=3))
        twin = self.native_twin(subject, saved)
        self.must_load_shards(subject, path)
        self.must_equal(subject, twin)

    @case(2, rows=(8,), layouts=is_torch_sharded)
    def test_shard_that_does_not_fit(self, layout: str) -> None:
        from colossalai.checkpoint_io.utils import load_param_groups_into_optimizer, load_states_into_optimizer

        subject, saved = self.trained(), self.saved()
        path = self.write(self.files(saved, layout))
        id_map = load_param_groups_into_optimizer(subject.inner, os.path.join(path, GROUP_FILE))
        load_states_into_optimizer(subject.inner, {0: saved["state"][0]}, id_map)
        before = look_at(subject.inner)
        spoilt = {1: saved["state"][1], 2: {**saved["state"][2], "exp_avg": torch.ones(99)}}
        error = self.tried(load_states_into_optimizer, subject.inner, spoilt, id_map)
        problems = [] if isinstance(error, ValueError) else [f"a shard that does not fit: {error!r}"]
        self.verdict(problems + differences(before, look_at(subject.inner), "after the refusal, "))

    @case(2, rows=(20,), layouts=is_torch_sharded)
    def test_shard_of_an_unknown_parameter(self, layout: str) -> None:
        subject, saved = self.trained(), self.saved()
        saved["state"][77] = saved["state"][0]
        path = self.write(self.files(saved, layout))
        error = self.tried(self.load_shards, subject, path)
        self.verdict([] if isinstance(error, ValueError) else [f"an unknown id was accepted: {error!r}"])

    @case(1, rows=(1, 20), layouts=is_torch_sharded)
    def test_unknown_parameters_may_be_skipped(self, layout: str) -> None:
        subject, saved = self.trained(), self.saved(ids=(0, 3))
        twin = self.native_twin(subject, saved)
        saved["state"][77] = saved["state"][0]
        self.must_load_shards(subject, self.write(self.files(saved, layout)), strict=True)
        self.must_equal(subject, twin)
