"""The contract for TorchFSDPCheckpointIO."""

from ..configurations.torch_fsdp import TorchFSDPContract


class TestTorchFSDPAlone(TorchFSDPContract):
    """One process."""

    layouts = ("torch-sharded", "safetensors-one-file")


class TestTorchFSDP(TorchFSDPContract):
    """Two processes."""

    world_size = 2


class TestTorchFSDPOnFour(TorchFSDPContract):
    """Four processes: slices are padded, and some are nothing else."""

    world_size = 4
    layouts = ("torch-sharded",)


class TestTorchFSDPWithoutSharding(TorchFSDPContract):
    """Two processes that hold flat parameters whole."""

    world_size = 2
    layouts = ("torch-sharded", "torch-one-file")
    strategy = "NO_SHARD"
