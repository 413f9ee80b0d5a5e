"""LowLevelZeroCheckpointIO: which slice of the saved state a rank holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from ..contract.base import case
from ..contract.cases.own_files import SIZES
from ..contract.cases.state_dicts import StateDictCases
from ..contract.subjects import Recipe, Shape, Subject
from .boosted import SCALARS, BoosterContract

if TYPE_CHECKING:
    from colossalai.booster.plugin import Plugin


class LowLevelZeroContract(StateDictCases, BoosterContract):
    """LowLevelZeroCheckpointIO: every parameter is flattened, padded and dealt to the ranks in equal slices.

    Attributes:
        stage (int): ZeRO stage.
        precision (str): precision of the working parameters; the slices are held in float32.
        offload (bool): whether the slices and their state are held in host memory.
        extra_data_parallel (int): size of the outer data-parallel groups.
    """

    class_under_test = "LowLevelZeroCheckpointIO"
    by_position = False
    cuts = True
    whole_optimizers = False
    stage = 1
    precision = "bf16"
    offload = False
    extra_data_parallel = 1

    def plugin(self) -> Plugin:
        from colossalai.booster.plugin import LowLevelZeroPlugin

        return LowLevelZeroPlugin(
            stage=self.stage,
            precision=self.precision,
            cpu_offload=self.offload,
            initial_scale=8.0,
            extra_dp_size=self.extra_data_parallel,
        )

    def state_dtype(self, recipe: Recipe) -> torch.dtype:
        return torch.float32

    def local_state(self, subject: Subject, saved: dict[str, Any]) -> dict[str, Any]:
        state = {
            param_id: {key: self.slice_of(subject.shapes.get(param_id), key, value) for key, value in entries.items()}
            for param_id, entries in saved["state"].items()
        }
        return {**saved, "state": state}

    @pytest.mark.parametrize("shards", SIZES)
    @case(1, rows=(12,))
    def test_state_of_the_optimizer_itself_is_saved(self, shards: str) -> None:
        source, subject = self.trained(1, steps=3), self.trained(2)
        source.inner.state["global"] = {"seen": torch.arange(3), "name": 4}
        self._goes_on_alike(source, subject, self.save(source, size_per_shard=SIZES[shards]))

    def slice_of(self, shape: Shape | None, key: str, value: object) -> object:
        """This rank's slice of a value that has the parameter's shape; anything else is kept whole.

        Args:
            shape (Optional[Shape]): global shape of the parameter.
            key (str): name of the value.
            value (object): a value of its state.

        Returns:
            object: the slice.
        """
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape or key in SCALARS:
            return value
        length = -(-value.numel() // self.world_size)
        padded = torch.zeros(length * self.world_size, dtype=value.dtype)
        padded[: value.numel()] = value.reshape(-1)
        return padded[length * self.rank : length * (self.rank + 1)].clone()
