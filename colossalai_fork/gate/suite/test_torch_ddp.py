"""The contract for TorchDDPCheckpointIO."""

from ..configurations import TorchDDPContract


class TestTorchDDPAlone(TorchDDPContract):
    """One process."""

    world_size = 1
    layouts = ("torch-sharded", "torch-one-file")


class TestTorchDDP(TorchDDPContract):
    """Two processes."""

    world_size = 2
