"""What is measured: which configurations, how large, from which files, and who takes part."""

from __future__ import annotations

import dataclasses
from typing import Any

#: All loaders, in the order of the report.
CONTESTANTS = ("ours", "unmodified", "native", "dcp", "floor")
#: A destination without state, and one that has taken a step.
DESTINATIONS = ("fresh", "trained")
WARM, COLD = "warm", "cold"


@dataclasses.dataclass(frozen=True)
class Case:
    """One checkpoint, and who loads it.

    Attributes:
        name (str): how the command line calls it.
        title (str): how the report calls it.
        configuration (str): key of :data:`benchmarks.subjects.CONFIGURATIONS`.
        processes (int): number of ranks.
        megabytes (float): about how much state all parameters together have, in units of 1,000,000 bytes.
        parameters (int): number of parameters, where the configuration leaves a choice.
        width (int): width of the model's layers, where the configuration has such.
        safetensors (bool): whether the shards are safetensors files instead of torch's.
        shards (int): about how many shards the checkpoint has.
        contestants (Tuple[str, ...]): who can do the job.
        caches (Tuple[str, ...]): whether files are in the page cache ("warm"), or on the disk only ("cold").
    """

    name: str
    title: str
    configuration: str = "general"
    processes: int = 1
    megabytes: float = 1000
    parameters: int = 20
    width: int = 1024
    safetensors: bool = False
    shards: int = 10
    contestants: tuple[str, ...] = CONTESTANTS
    caches: tuple[str, ...] = (WARM, COLD)

    @property
    def megabytes_per_shard(self) -> float:
        """What ColossalAI is told, in its units of 1,048,576 bytes."""
        return max(1.05 * self.megabytes * 1e6 / 2**20 / self.shards, 1e-3)

    def scaled(self, factor: float) -> Case:
        """The same with more state, or less. Cases of many small parameters stay as they are.

        Args:
            factor (float): how much more.

        Returns:
            Case: the case.
        """
        return self if self.is_small else dataclasses.replace(self, megabytes=self.megabytes * factor)

    @property
    def is_small(self) -> bool:
        """Whether the parameters have a few elements each, so that bytes do not count."""
        return self.megabytes * 1e6 / 8 < 100 * self.parameters


def _general(name: str, title: str, **changes: Any) -> Case:
    return Case(f"general-{name}", f"General, {title}", **changes)


def _small(count: int, contestants: tuple[str, ...]) -> Case:
    # exp_avg and exp_avg_sq of two elements in float32.
    return _general(
        f"small-{count // 1000}k",
        f"{count:,} parameters of 2 elements",
        megabytes=count * 16 / 1e6,
        parameters=count,
        shards=1,
        contestants=contestants,
        caches=(WARM,),
    )


_OURS_AND_THEIRS = ("ours", "unmodified", "floor")
_GENERAL = _general("large", "20 parameters")
_ZERO = Case("zero-2", "LowLevelZero, 2 ranks", "zero", 2, 384, contestants=_OURS_AND_THEIRS)
#: Every case. With more parameters torch's own loading takes quadratic time, and DCP a millisecond for each.
WHOLE = (
    _GENERAL,
    _general("large-safetensors", "20 parameters, safetensors", safetensors=True, contestants=_OURS_AND_THEIRS),
    _small(10_000, CONTESTANTS),
    _small(50_000, _OURS_AND_THEIRS),
    dataclasses.replace(
        _small(50_000, _OURS_AND_THEIRS),
        name="general-small-50k-safetensors",
        title="General, 50,000 parameters of 2 elements, safetensors",
        safetensors=True,
    ),
    _small(100_000, _OURS_AND_THEIRS),
    _ZERO,
    Case("zero-4", "LowLevelZero, 4 ranks", "zero", 4, 192, contestants=_OURS_AND_THEIRS),
    Case(
        "hybrid-tensor-2",
        "HybridParallel, tensor parallel 2",
        "hybrid-tensor",
        2,
        320,
        0,
        512,
        contestants=_OURS_AND_THEIRS,
    ),
    Case("hybrid-zero-2", "HybridParallel, ZeRO 2", "hybrid-zero", 2, 320, 0, 512, contestants=_OURS_AND_THEIRS),
    Case("gemini-2", "Gemini, 2 ranks", "gemini", 2, 320, 0, 512, contestants=_OURS_AND_THEIRS),
    Case("fsdp-2", "TorchFSDP, 2 ranks", "fsdp", 2, 384, contestants=("ours", "unmodified", "dcp", "floor")),
)
#: What fits into two minutes.
QUICK = (
    dataclasses.replace(_GENERAL, megabytes=256),
    _small(10_000, ("ours", "unmodified", "native", "floor")),
    dataclasses.replace(_ZERO, megabytes=128),
)


def by_name(name: str) -> Case:
    """Find a case.

    Args:
        name (str): its name.

    Returns:
        Case: the case.

    Raises:
        KeyError: there is none of this name.
    """
    return {case.name: case for case in WHOLE}[name]
