"""Those who load: each puts the state of one checkpoint into an optimizer in its own way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .cases import Case
    from .subjects import Subject

BLOCK = 2**16


class ColossalAI:
    """ColossalAI as it is installed."""

    name = "unmodified"
    files = "sharded"

    def get_ready(self) -> None:
        """Do what a training script does once, before it makes a model."""

    def subject(self, case: Case, device: str, sizes: list[int]) -> Subject:
        """Make what is loaded into.

        Args:
            case (Case): the case.
            device (str): "cpu" or "cuda".
            sizes (List[int]): bytes of each tensor that this rank is to hold.

        Returns:
            Subject: the subject.
        """
        from . import subjects

        return subjects.make(case, device)

    def load(self, subject: Subject, path: str) -> None:
        """Load the checkpoint.

        Args:
            subject (Subject): what is loaded into.
            path (str): the checkpoint.
        """
        subject.io.load_optimizer(subject.optimizer, path)


class Ours(ColossalAI):
    """ColossalAI with this project's overlay."""

    name = "ours"

    def get_ready(self) -> None:
        import colossalai_fork

        colossalai_fork.apply()


class Native(ColossalAI):
    """torch.load and the optimizer's own load_state_dict."""

    name = "torch"
    files = "native"

    def load(self, subject: Subject, path: str) -> None:
        device = next(iter(subject.model.parameters())).device
        state = torch.load(os.path.join(path, "optimizer.pt"), map_location=device, weights_only=True)
        subject.inner.load_state_dict(state)


class DistributedCheckpoint(ColossalAI):
    """torch.distributed.checkpoint, as its documentation has it."""

    name = "torch DCP"
    files = "dcp"

    def load(self, subject: Subject, path: str) -> None:
        from torch.distributed import checkpoint
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

        model, state = dcp_state(subject)
        checkpoint.load({"optimizer": state}, checkpoint_id=path)
        set_optimizer_state_dict(model, subject.inner, optim_state_dict=state)


def dcp_state(subject: Subject) -> tuple[torch.nn.Module, dict[str, Any]]:
    """What torch.distributed.checkpoint saves, and loads in place.

    Args:
        subject (Subject): the subject. Gets state if it has none.

    Returns:
        Tuple[torch.nn.Module, dict]: the model as torch knows it, and the state dict.
    """
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model = subject.model.unwrap() if hasattr(subject.model, "unwrap") else subject.model
    return model, get_optimizer_state_dict(model, subject.inner)


class Buffers:
    """Memory of the size of a rank's state.

    Args:
        sizes (List[int]): bytes of each tensor.
    """

    def __init__(self, sizes: list[int]) -> None:
        # Small ones lie side by side in blocks.
        large = [size for size in sizes if size > BLOCK]
        blocks, rest = divmod(sum(sizes) - sum(large), BLOCK)
        self.sizes = large + [BLOCK] * blocks + [rest] * (rest > 0)
        self.tensors = []

    def forget(self) -> None:
        """Give the memory back."""
        self.tensors = []

    def train(self) -> None:
        """State is there already if anything was loaded."""

    def tensor_sizes(self) -> list[int]:
        """Bytes of each buffer.

        Returns:
            List[int]: the sizes.
        """
        return self.sizes


class Floor(ColossalAI):
    """The least that anybody has to do: read the bytes once, into memory of their own."""

    name = "floor"

    def subject(self, case: Case, device: str, sizes: list[int]) -> Buffers:
        return Buffers(sizes)

    def load(self, subject: Buffers, path: str) -> None:
        subject.forget()
        files = [os.path.join(path, name) for name in sorted(os.listdir(path))]
        subject.tensors = [torch.empty(size, dtype=torch.uint8) for size in subject.sizes]
        views = [memoryview(tensor.numpy()) for tensor in reversed(subject.tensors)]
        for file in files:
            with open(file, "rb", buffering=0) as source:
                while views:
                    count = source.readinto(views[-1])
                    if not count:
                        break
                    views[-1] = views[-1][count:]
                    if not views[-1]:
                        views.pop()


CONTESTANTS = {
    "ours": Ours(),
    "unmodified": ColossalAI(),
    "native": Native(),
    "dcp": DistributedCheckpoint(),
    "floor": Floor(),
}
#: How reports call them.
NAMES = {name: contestant.name for name, contestant in CONTESTANTS.items()}
