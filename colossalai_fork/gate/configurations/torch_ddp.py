"""TorchDDPCheckpointIO: copies of the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .boosted import BoosterContract

if TYPE_CHECKING:
    from colossalai.booster.plugin import Plugin


class TorchDDPContract(BoosterContract):
    """TorchDDPCheckpointIO: every rank holds the whole state."""

    class_under_test = "TorchDDPCheckpointIO"

    def plugin(self) -> Plugin:
        from colossalai.booster.plugin import TorchDDPPlugin

        return TorchDDPPlugin(find_unused_parameters=True)
