"""What the benchmark takes from the gate: all of it is named here, and nowhere else."""

from typing import Any


def stand_in_for_cuda() -> None:
    """Let unmodified ColossalAI train and load on CPU in this process; does nothing where CUDA is available."""
    from colossalai_fork.gate.cpu import stand_in

    stand_in.install()


def write_safetensors(path: str, saved: dict[str, Any], shards: int) -> None:
    """Write a checkpoint of safetensors shards, as ColossalAI's asynchronous saving lays it out.

    Args:
        path (str): the directory.
        saved (dict): a state dict of a torch optimizer.
        shards (int): number of shards.
    """
    from colossalai_fork.gate.contract.checkpoint_files import CheckpointFiles

    CheckpointFiles(saved, "safetensors-sharded", shards=shards).write(path)


def bytes_read() -> int:
    """Bytes this process has asked the system to read so far (Linux).

    Returns:
        int: the bytes.
    """
    from colossalai_fork.gate.contract import counting

    return counting.bytes_read()
