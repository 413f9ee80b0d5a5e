"""Contract point 1: what one configuration saves, another loads, wherever ids and global shapes are the same.

A crossing takes two sets of processes, so it is no case of one class: :func:`cross` runs half of it on each.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..base import ContractBase, case
from ..comparison import differences, look_at
from ..subjects import Recipe, Subject

if TYPE_CHECKING:
    from ...plugin import Gate

#: Where a configuration leaves its checkpoint for another, below the directory of the case.
NAME = "from-another-configuration"


class CrossingCases(ContractBase):
    """The two halves of a crossing."""

    @case(1, rows=(25,))
    def save_for_another_configuration(self, one_file: bool = False) -> None:
        """Train on some of the parameters, and save."""
        source = self.build(seed=1, recipe=self.crossing_recipe())
        for step in range(3):
            source.train(step, (0, 1, 3))
        path = os.path.join(self.directory, NAME)
        options = {"shard": False} if one_file else {"shard": True, "size_per_shard": 1e-9}
        error = self.tried(self.checkpoint_io().save_optimizer, source.optimizer, path, **options)
        self.verdict([] if error is None else [f"cannot save: {type(error).__name__}: {error}"])
        self.verdict(self.not_held(source, whole_state(path)))

    @case(1, rows=(25,))
    def load_from_another_configuration(self) -> None:
        """Load that into an optimizer that has trained on all of them."""
        subject = self.trained(seed=2, recipe=self.crossing_recipe())
        path = os.path.join(self.directory, NAME)
        self.must_replace(subject, whole_state(path), path)

    def crossing_recipe(self) -> Recipe:
        """Parameters that no number of ranks divides alike.

        Returns:
            Recipe: the recipe.
        """
        return self.recipe(shapes=((4, 3), (7,), (2, 3), (1,)))

    def not_held(self, source: Subject, saved: dict[str, Any]) -> list[str]:
        """Compare files with what this rank of the saver holds.

        Args:
            source (Subject): what was saved.
            saved (dict): what is in the files.

        Returns:
            List[str]: the differences.
        """
        return differences(look_at(self.native_twin(source, saved)), look_at(source.inner), "what was saved: ")


def whole_state(path: str) -> dict[str, Any]:
    """Read a checkpoint of torch files.

    Args:
        path (str): its directory, or the file.

    Returns:
        dict: the state dict.
    """
    if os.path.isfile(path):
        return torch.load(path, weights_only=True)
    state = {}
    for name in sorted(os.listdir(path)):
        if name.startswith("pytorch_optim-"):
            state.update(torch.load(os.path.join(path, name), weights_only=True))
    groups = torch.load(os.path.join(path, "pytorch_optim_group.bin"), weights_only=True)
    return {"state": state, "param_groups": groups}


def cross(
    gate: Gate, saver: type[ContractBase], loader: type[ContractBase], directory: str | Path, **how: bool
) -> None:
    """Save with one configuration and load with another.

    Args:
        gate (Gate): the processes.
        saver (type): a configuration.
        loader (type): a configuration.
        directory (str | Path): an empty directory.
        how (bool): arguments of saving.
    """
    for configuration, method, arguments in (
        (saver, "save_for_another_configuration", how),
        (loader, "load_from_another_configuration", {}),
    ):
        half = configuration()
        half._gate, half.directory = gate, str(directory)
        getattr(half, method)(**arguments)
