"""TorchDDPCheckpointIO: copies of the whole model."""

from .boosted import BoosterContract


class TorchDDPContract(BoosterContract):
    """TorchDDPCheckpointIO: every rank holds the whole state."""

    class_under_test = "TorchDDPCheckpointIO"

    def plugin(self):
        from colossalai.booster.plugin import TorchDDPPlugin

        return TorchDDPPlugin(find_unused_parameters=True)
