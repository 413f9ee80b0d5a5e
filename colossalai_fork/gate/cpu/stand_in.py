"""Lets unmodified ColossalAI train on CPU processes that talk over gloo.

ColossalAI has a CPU accelerator that refuses most of what the plugins ask of it, and several plugins name CUDA outright.
Nothing here is part of the fix: the stand-ins exist so that a demo or a test can train without a GPU, and they are put in
and taken out of the running process only. Each one is a function below that says why it is needed.

    install()            put every stand-in in (safe to call twice)
    uninstall()          take them out again
    with stand_ins(): …  the same for a block
    with without_stand_ins(): …  the bare CPU accelerator for a block, to check that code needs none of this
"""

from __future__ import annotations

import contextlib
from typing import Callable, Iterator

from . import stand_in_gemini
from .replacements import Replacements

_installed = None


class InstantStream:
    """A stream of a device that has none: all work is done by the time the call returns."""

    def wait_stream(self, stream: object) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: object) -> None:
        """Nothing to wait for."""

    def record_event(self, event: InstantEvent | None = None) -> InstantEvent:
        """Everything issued before has happened."""
        return event or InstantEvent()

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Work is always done."""
        return True


class InstantEvent:
    """An event on such a stream."""

    def record(self, stream: object = None) -> None:
        """Nothing is pending."""

    def wait(self, stream: object = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Always reached."""
        return True

    def elapsed_time(self, other: object) -> float:
        """No time is kept."""
        return 0.0


def _accelerator(put: Callable[[object, str, object], None]) -> None:
    # The CPU accelerator raises "not supported" for these; trainers call them on every device alike.
    import torch
    from colossalai.accelerator.cpu_accelerator import CpuAccelerator

    stream = InstantStream()
    put(CpuAccelerator, "synchronize", lambda self, device=None: None)
    put(CpuAccelerator, "empty_cache", lambda self: None)
    put(CpuAccelerator, "device_count", lambda self: 1)
    # Pipeline code hands this to torch.device() and to tensor factories, which take a device but not the index of a CPU.
    put(CpuAccelerator, "current_device", lambda self: torch.device("cpu"))
    put(CpuAccelerator, "Stream", lambda self, device=None, priority=0, **kwargs: InstantStream())
    put(CpuAccelerator, "Event", lambda self, *args, **kwargs: InstantEvent())
    put(CpuAccelerator, "current_stream", lambda self, device=None: stream)
    put(CpuAccelerator, "default_stream", lambda self, device=None: stream)
    put(CpuAccelerator, "set_stream", lambda self, stream_: None)
    put(CpuAccelerator, "stream", lambda self, stream_: contextlib.nullcontext())
    put(CpuAccelerator, "manual_seed", lambda self, seed: torch.manual_seed(seed) and None)
    put(CpuAccelerator, "manual_seed_all", lambda self, seed: torch.manual_seed(seed) and None)
    # Upstream passes a device, which torch's CPU generator does not take.
    put(CpuAccelerator, "get_rng_state", lambda self, device=None: torch.get_rng_state())
    put(CpuAccelerator, "memory_allocated", lambda self, device=None: 0)
    put(CpuAccelerator, "max_memory_allocated", lambda self, device=None: 0)
    put(CpuAccelerator, "reset_peak_memory_stats", lambda self, device=None: None)


def _record_stream(put: Callable[[object, str, object], None]) -> None:
    # Overlapped communication records a tensor on the communication stream, and torch accepts only its own stream type.
    import torch

    original = torch.Tensor.record_stream

    def record_stream(self, stream: object) -> None:
        if not isinstance(stream, InstantStream):
            original(self, stream)

    put(torch.Tensor, "record_stream", record_stream)


def _zero_sanity_check(put: Callable[[object, str, object], None]) -> None:
    # LowLevelZeroOptimizer asserts that the accelerator is called "cuda" or "npu"; its other checks stay in force.
    from colossalai.accelerator.cpu_accelerator import CpuAccelerator
    from colossalai.zero.low_level.low_level_optim import LowLevelZeroOptimizer

    original = LowLevelZeroOptimizer._sanity_checks

    def checks_as_on_cuda(self) -> None:
        renamed = Replacements()
        renamed.put(CpuAccelerator, "name", "cuda")
        try:
            original(self)
        finally:
            renamed.restore()

    put(LowLevelZeroOptimizer, "_sanity_checks", checks_as_on_cuda)


def _pipeline_backend(put: Callable[[object, str, object], None]) -> None:
    # Pipeline communication asks for Huawei's backend by a name that only their build of torch has.
    from colossalai.pipeline import p2p

    put(p2p, "_check_for_nccl_hccl_backend", lambda group: False)


def _cuda_calls(put: Callable[[object, str, object], None]) -> None:
    # MoE saving moves tensors with .cuda(), and FSDP asks torch for the current CUDA device.
    import torch

    put(torch.Tensor, "cuda", lambda self, *args, **kwargs: self)
    put(torch.cuda, "current_device", lambda: torch.device("cpu"))
    put(torch.cuda, "synchronize", lambda device=None: None)


def _pinned_memory(put: Callable[[object, str, object], None]) -> None:
    # Page-locked memory needs a CUDA driver; ordinary memory holds the same bytes.
    import torch
    from colossalai.checkpoint_io import utils as checkpoint_utils

    def ordinary_memory(tensor: torch.Tensor, empty: bool = True) -> torch.Tensor:
        return torch.empty_like(tensor, device="cpu") if empty else tensor.detach().clone()

    put(checkpoint_utils, "_pin_tensor", ordinary_memory)


_STAND_INS = (
    _accelerator,
    _record_stream,
    _zero_sanity_check,
    _pipeline_backend,
    _cuda_calls,
    _pinned_memory,
    stand_in_gemini.kernels,
    stand_in_gemini.chunks,
)


def install() -> bool:
    """Put the stand-ins into the running process.

    Does nothing where CUDA is available or when they are in already.

    Returns:
        bool: whether the stand-ins are in place.
    """
    global _installed
    import torch

    if torch.cuda.is_available():
        return False
    if _installed is None:
        replacements = Replacements()
        try:
            for stand_in in _STAND_INS:
                stand_in(replacements.put)
        except BaseException:
            replacements.restore()
            raise
        _installed = replacements
    return True


def uninstall() -> None:
    """Take the stand-ins out of the running process, if they are in."""
    global _installed
    if _installed is not None:
        _installed.restore()
        _installed = None


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Have the stand-ins in place for a block."""
    were_in = _installed is not None
    install()
    try:
        yield
    finally:
        if not were_in:
            uninstall()


@contextlib.contextmanager
def without_stand_ins() -> Iterator[None]:
    """Have the bare CPU accelerator for a block, whatever was in place before."""
    were_in = _installed is not None
    uninstall()
    try:
        yield
    finally:
        if were_in:
            install()
