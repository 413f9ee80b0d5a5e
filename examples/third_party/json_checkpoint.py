"""A checkpoint IO class with a format of its own, and right: one JSON file, which holds text and nothing that could run.

A tensor is its dtype, its shape and its bytes. What a load must promise is left to :func:`restore`, which takes a state dict
in memory as well as files.
"""

import base64
import json
import pathlib

import torch

from colossalai_fork.checkpoint_io import GeneralCheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import in_memory
from colossalai_fork.checkpoint_io.optimizer_restore.restore import restore


def encoded(value):
    """Make JSON of a value.

    Args:
        value (object): what a state dict may hold.

    Returns:
        object: what JSON can hold.

    Raises:
        TypeError: for a value of another class.
    """
    if isinstance(value, torch.Tensor):
        data = bytes(value.detach().cpu().contiguous().flatten().view(torch.uint8).tolist())
        return {"tensor": [str(value.dtype), list(value.shape), base64.b64encode(data).decode()]}
    if isinstance(value, dict):
        return {"mapping": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [encoded(item) for item in value]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def decoded(value):
    """Undo :func:`encoded`.

    Args:
        value (object): from JSON.

    Returns:
        object: the value.
    """
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        dtype, shape, data = content
        flat = torch.frombuffer(bytearray(base64.b64decode(data)) or bytearray(8), dtype=torch.uint8)
        elements = torch.Size(shape).numel()
        dtype = getattr(torch, dtype.removeprefix("torch."))
        return flat[: elements * dtype.itemsize].view(dtype).reshape(shape).clone()
    if kind == "mapping":
        return {decoded(key): decoded(item) for key, item in content}
    return {"list": list, "tuple": tuple}[kind](map(decoded, content))


class JsonCheckpointIO(GeneralCheckpointIO):
    """Checkpoint IO whose optimizer files are JSON."""

    def save_unsharded_optimizer(self, optimizer, checkpoint, gather_dtensor=False, use_async=False):
        pathlib.Path(checkpoint).write_text(json.dumps(encoded(optimizer.state_dict())))

    def load_unsharded_optimizer(self, optimizer, checkpoint, low_cpu_mem_mode=True, num_threads=1):
        def opened():
            path = pathlib.Path(checkpoint)
            # A pipe, or a device, would have every rank wait.
            if not path.is_file():
                raise RuntimeError(f"{checkpoint} is no regular file")
            try:
                state_dict = decoded(json.loads(path.read_text()))
            except Exception as error:
                raise RuntimeError(f"{checkpoint} cannot be read: {type(error).__name__}: {error}") from error
            return in_memory(state_dict, str(checkpoint))

        restore(self.optimizer_destination(optimizer), opened, low_cpu_mem_mode, num_threads)
