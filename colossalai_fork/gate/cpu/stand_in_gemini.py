"""What Gemini and ColossalAI's own Adam need to run on CPU (used by :mod:`stand_in`)."""

from __future__ import annotations

import contextlib
import importlib
import types
from typing import TYPE_CHECKING, Any, Callable, ContextManager

import torch

if TYPE_CHECKING:
    from colossalai.accelerator import BaseAccelerator

# The Gemini modules that ask the accelerator for its name or its device to tell "on the GPU" from "offloaded".
_MODULES_THAT_NAME_THE_DEVICE = (
    "colossalai.zero.gemini.chunk.chunk",
    "colossalai.zero.gemini.chunk.manager",
    "colossalai.zero.gemini.gemini_optimizer",
    "colossalai.zero.gemini.placement_policy",
)


class TorchAdamKernel:
    """The interface of ColossalAI's compiled CPU Adam, as tensor operations."""

    def __init__(
        self, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, adamw_mode: bool
    ) -> None:
        self.decoupled = adamw_mode

    def step(
        self,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        bias_correction: bool,
        param: torch.Tensor,
        grad: torch.Tensor,
        exp_avg: torch.Tensor,
        exp_avg_sq: torch.Tensor,
        loss_scale: float,
    ) -> None:
        """Update a parameter and its moments in place."""
        # Half-precision operands are computed on in float32 and rounded once, as the compiled kernel does.
        value, first, second = param.float(), exp_avg.float(), exp_avg_sq.float()
        gradient = grad.float()
        if loss_scale > 0:
            gradient = gradient / loss_scale
        if weight_decay and self.decoupled:
            value = value * (1 - lr * weight_decay)
        elif weight_decay:
            gradient = gradient + weight_decay * value
        first = torch.lerp(first, gradient, 1 - beta1)
        second = torch.lerp(second, gradient.square(), 1 - beta2)
        first_scale, second_scale = (1 - beta1**step, 1 - beta2**step) if bias_correction else (1.0, 1.0)
        value = value - lr / first_scale * first / (second.div(second_scale).sqrt() + eps)
        param.copy_(value)
        exp_avg.copy_(first)
        exp_avg_sq.copy_(second)


def kernels(put: Callable[[object, str, object], None]) -> None:
    """CPUAdam and HybridAdam compile a kernel with nvcc, even for their CPU half, and Gemini accepts no other optimizer."""
    from colossalai.kernel.kernel_loader import CPUAdamLoader

    kernel = types.SimpleNamespace(CPUAdamOptimizer=TorchAdamKernel)
    put(CPUAdamLoader, "load", lambda self, ext_name=None: kernel)


class _NamedCuda:
    """Stands for the accelerator's device where Gemini only looks at its type."""

    type = "cuda"
    index = 0

    def __eq__(self, other: object) -> bool:
        return getattr(other, "index", None) == self.index

    __hash__ = object.__hash__


class _AcceleratorNamedCuda:
    """The CPU accelerator under another name.

    Its device is ``cpu:0``. Tensors made there live on plain ``cpu``, but Gemini's calls can tell the two apart, as they
    must: a chunk is either on the accelerator or offloaded.
    """

    name = "cuda"

    def __init__(self, accelerator: BaseAccelerator, device: torch.device) -> None:
        self._accelerator = accelerator
        self._device = device

    def get_current_device(self) -> torch.device:
        return self._device

    def stream(self, stream: object) -> ContextManager[None]:
        return contextlib.nullcontext()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)


def chunks(put: Callable[[object, str, object], None]) -> None:
    """Gemini's chunks know two places, accelerator and host, and assert that the accelerator's is called "cuda"."""
    from colossalai.accelerator import get_accelerator
    from colossalai.zero.gemini.chunk import Chunk

    named_cuda = _AcceleratorNamedCuda(get_accelerator(), torch.device("cpu", 0))
    for name in _MODULES_THAT_NAME_THE_DEVICE:
        put(importlib.import_module(name), "get_accelerator", lambda: named_cuda)

    original_init, original_move = Chunk.__init__, Chunk.shard_move

    def init(self, *args: Any, **kwargs: Any) -> None:
        # Page-locked memory needs a CUDA driver.
        kwargs["pin_memory"] = False
        original_init(self, *args, **kwargs)
        if not kwargs.get("cpu_shard_init", False):
            self.shard_device = _NamedCuda()

    def shard_move(self, device: torch.device, force_copy: bool = False, non_blocking: bool = False) -> None:
        if device.index is not None:
            if self.cuda_shard is not None:
                return
            device = _NamedCuda()
        original_move(self, device, force_copy, non_blocking)

    put(Chunk, "__init__", init)
    put(Chunk, "shard_move", shard_move)
