"""Contract points 1 and 10: what the class saves, it loads; training goes on as if it had never stopped."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from ..base import ContractBase, case
from ..comparison import differences, look_at
from ..subjects import Subject

SIZES = {"one shard": 1024, "many shards": 1e-9}


class OwnFilesCases(ContractBase):
    """Checkpoints written by the class under test."""

    def save(self, subject: Subject, name: str = "own", **options: Any) -> str:
        """Save the subject's optimizer, on every rank.

        Args:
            subject (Subject): what to save.
            name (str): a directory below the case's.
            options (Any): more arguments of ``save_optimizer``.

        Returns:
            str: what to load.
        """
        path = os.path.join(self.directory, name)
        if not options.get("shard", True):
            path += ".bin"
        error = self.tried(self.checkpoint_io().save_optimizer, subject.optimizer, path, **{"shard": True, **options})
        self.verdict([] if error is None else [f"cannot save: {type(error).__name__}: {error}"])
        return path

    def _goes_on_alike(self, source: Subject, subject: Subject, path: str, ids: tuple[int, ...] | None = None) -> None:
        """Load into a subject that has trained, and train both on.

        Args:
            source (Subject): what was saved.
            subject (Subject): where to load.
            path (str): the checkpoint.
            ids (Optional[Tuple[int, ...]]): parameters that take part in further training.
        """
        subject.model.load_state_dict(source.model.state_dict())
        self._copy_weights(source, subject)
        # Native loading casts what is no float32, so the source goes through it as well.
        source.inner.load_state_dict(source.inner.state_dict())
        self.must_load(subject, path)
        self.verdict(differences(look_at(source.inner), look_at(subject.inner), ""))
        for each in (source, subject):
            each.train(77, ids)
        self.verdict(
            differences(source.weights(), subject.weights(), "after one more step, ")
            + differences(look_at(source.inner), look_at(subject.inner), "after one more step, ")
        )

    def _copy_weights(self, source: Subject, subject: Subject) -> None:
        with torch.no_grad():
            for mine, others in zip(subject.parameters, source.parameters):
                mine.copy_(others)

    @pytest.mark.parametrize("shards", [*SIZES, "one file"])
    @case(1, 10, rows=(29,))
    def test_save_load_and_train_on(self, shards: str) -> None:
        source, subject = self.trained(seed=1, steps=3), self.trained(seed=2)
        options = {"shard": False} if shards == "one file" else {"size_per_shard": SIZES[shards]}
        self._goes_on_alike(source, subject, self.save(source, **options))

    @pytest.mark.parametrize("shards", [*SIZES, "one file"])
    @case(1, rows=(2,))
    def test_saved_before_the_first_step(self, shards: str) -> None:
        source, subject = self.build(seed=1), self.trained(seed=2)
        options = {"shard": False} if shards == "one file" else {"size_per_shard": SIZES[shards]}
        self._goes_on_alike(source, subject, self.save(source, **options))

    @pytest.mark.parametrize("shards", [*SIZES, "one file"])
    @case(1, rows=(1, 4, 17))
    def test_saved_with_an_unused_layer(self, shards: str) -> None:
        source, subject = self.build(seed=1), self.trained(seed=2)
        used = (0, 2)
        for seed in range(3):
            source.train(seed, used)
        options = {"shard": False} if shards == "one file" else {"size_per_shard": SIZES[shards]}
        self._goes_on_alike(source, subject, self.save(source, **options), used)

    @pytest.mark.parametrize("name", ["SGD", "NAdam", "ASGD", "EveryKindOfState"])
    @pytest.mark.parametrize("shards", [*SIZES, "one file"])
    @case(1, rows=(11, 12))
    def test_saved_by_another_optimizer(self, shards: str, name: str) -> None:
        recipe = self.recipe(optimizer=name)
        source, subject = self.trained(1, recipe, 3), self.trained(2, recipe)
        options = {"shard": False} if shards == "one file" else {"size_per_shard": SIZES[shards]}
        self._goes_on_alike(source, subject, self.save(source, **options))

    @pytest.mark.parametrize("shards", [*SIZES, "one file"])
    @case(1, rows=(2,))
    def test_saving_makes_no_state(self, shards: str) -> None:
        subject = self.build()
        options = {"shard": False} if shards == "one file" else {"size_per_shard": SIZES[shards]}
        path = self.save(subject, **options)
        self.everyone(None)
        entries = len(subject.inner.state)
        problems = [f"saving made {entries} entries of state"] if entries else []
        if shards == "one file":
            saved = torch.load(path, weights_only=True)["state"]
        else:
            saved = json.loads(Path(path, "pytorch_optim.bin.index.json").read_text())["weight_map"]
        self.verdict(problems + ([f"there is no state, and the file holds that of {list(saved)}"] if saved else []))

    @case(1, rows=(21,))
    def test_saved_over_an_earlier_save(self) -> None:
        earlier, source, subject = self.trained(1, steps=1), self.trained(3, steps=3), self.trained(2)
        self.save(earlier, size_per_shard=SIZES["many shards"])
        self._goes_on_alike(source, subject, self.save(source, size_per_shard=1024))

    @case(1, rows=(21,))
    def test_nothing_of_an_earlier_save_is_left(self) -> None:
        source = self.trained(1)
        path = self.save(source, size_per_shard=SIZES["many shards"])
        self.everyone(None)
        earlier = self.everyone(shards_in(path))[0]
        self.save(source, size_per_shard=1024)
        self.everyone(None)
        shards = shards_in(path)
        problems = [] if len(earlier) > 1 else [f"shards that should hold a parameter each: {earlier}"]
        self.verdict(problems + ([] if len(shards) == 1 else [f"shards of the earlier save are left: {shards}"]))

    @case(1)
    def test_saved_with_a_prefix(self) -> None:
        source, subject = self.trained(1, steps=3), self.trained(2)
        self._goes_on_alike(source, subject, self.save(source, prefix="stage"))

    @case(1, rows=(25,))
    def test_files_hold_whole_tensors(self) -> None:
        source = self.trained(1)
        path = self.save(source)
        held = {}
        for name in sorted(os.listdir(path)):
            if name.startswith("pytorch_optim-"):
                held.update(torch.load(os.path.join(path, name), weights_only=True))
        local = self.local_state(source, {"state": held, "param_groups": []})["state"]
        mine = {}
        for number, parameter in enumerate(source.parameters):
            mine[number] = dict(source.inner.state[parameter])
        shapes = {number: tuple(state["exp_avg"].shape) for number, state in held.items()}
        self.verdict(differences(source.shapes, shapes, "saved shapes") + differences(mine, local, "saved state"))


def shards_in(path: str) -> list[str]:
    """The shards of a sharded checkpoint of torch files.

    Args:
        path (str): its directory.

    Returns:
        List[str]: their names.
    """
    return sorted(name for name in os.listdir(path) if name.startswith("pytorch_optim-"))
