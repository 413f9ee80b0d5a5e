"""How MoeHybridParallelPlugin distributes models with experts, and which part of the saved state a rank holds."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator

import torch

from ..contract.parallel_weights import WeightsPolicy
from ..contract.subjects import Recipe, Subject
from .hybrid_parallel import HybridParallelContract

if TYPE_CHECKING:
    from colossalai.booster.plugin import Plugin

#: The weights from this one on belong to experts.
FIRST_EXPERT = 2


class MoEContract(HybridParallelContract):
    """MoECheckpointIO: as under hybrid parallelism, and experts are dealt to the ranks of an expert parallel group.

    Attributes:
        expert_parallel (int): size of the expert parallel groups.
        saves_one_file (bool): whether what is in place can save one file.
    """

    class_under_test = "MoECheckpointIO"
    accepts_flat_state = True
    expert_parallel = 1
    saves_one_file = True
    zero = 1
    precision = "bf16"

    @property
    def removes_shards(self) -> bool:
        """Whether saving removes the shards of an earlier save."""
        return self.stages == 1 and self.expert_parallel == 1

    @property
    def unsaveable(self) -> str | None:
        """Optional[str]: why unmodified ColossalAI cannot save this configuration; None if it can."""
        if self.zero and self.tensor_parallel > 1:
            return "it cannot put parts together that ZeRO has flattened"
        return super().unsaveable

    @contextlib.contextmanager
    def unmodified(self) -> Iterator[None]:
        with super().unmodified():
            self.saves_one_file = False
            try:
                yield
            finally:
                self.saves_one_file = True

    def save(self, subject: Subject, name: str = "own", **options: Any) -> str:
        can = options.get("shard", True) or self.saves_one_file
        self.require(can, "unmodified ColossalAI saves no one file of experts")
        return super().save(subject, name, **options)

    def recipe(self, **changes: Any) -> Recipe:
        if "shapes" not in changes:
            # Two experts for each place that may have some.
            shapes = ((4, 3), (5,), (3, 4), (7,), (2, 3), (6,))
            changes = {"shapes": shapes, "groups": ((0, 1), (2, 3, 4, 5)), **changes}
        return super().recipe(**changes)

    def plugin(self) -> Plugin:
        from colossalai.booster.plugin import MoeHybridParallelPlugin

        return MoeHybridParallelPlugin(ep_size=self.expert_parallel, **self.plugin_arguments())

    def plugin_arguments(self) -> dict[str, Any]:
        return {**super().plugin_arguments(), "custom_policy": WeightsPolicy(FIRST_EXPERT)}

    def require_experts(self, recipe: Recipe) -> None:
        experts = [self.expert_place(number) for number in range(FIRST_EXPERT, len(recipe.shapes))]
        places = self.stages * self.expert_parallel
        self.require(len(set(experts)) == places, "some rank would have no expert, which the plugin does not allow")

    def expert_place(self, number: int) -> tuple[int, int]:
        """Where an expert's weight is.

        Args:
            number (int): its id.

        Returns:
            Tuple[int, int]: pipeline stage and rank in the expert parallel group.
        """
        return number % self.stages, (number // self.stages) % self.expert_parallel

    def holds(self, number: int) -> bool:
        rank = torch.distributed.get_rank(self.shared_plugin().ep_group)
        return super().holds(number) and (number < FIRST_EXPERT or self.expert_place(number)[1] == rank)

    def slicing_group(self, number: int) -> torch.distributed.ProcessGroup:
        plugin = self.shared_plugin()
        return plugin.dp_group if number < FIRST_EXPERT else plugin.moe_dp_group
