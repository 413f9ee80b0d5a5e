"""The machine that figures were taken on, as far as it matters to them. Names no host, user or path."""

import importlib.metadata
import os
import pathlib
import platform
import statistics
import time


def describe(directory: str, device: str) -> dict[str, object]:
    """Describe the machine and its software.

    Args:
        directory (str): where the checkpoints are.
        device (str): "cpu" or "cuda".

    Returns:
        Dict[str, object]: the description.
    """
    import torch

    described = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": _memory(),
        "load before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "file system": _file_system(directory),
        "read-ahead": _read_ahead(directory),
        "Python": platform.python_version(),
    }
    for name in ("torch", "colossalai", "colossalai-fork", "safetensors"):
        described[name] = importlib.metadata.version(name)
    if device == "cuda":
        described["GPU"] = torch.cuda.get_device_name()
        described["CUDA"] = torch.version.cuda
        described["host to device"] = ", ".join(
            f"{name} {_copies(pin):.0f} GB/s" for name, pin in (("pinned", True), ("pageable", False))
        )
    return {name: value for name, value in described.items() if value is not None}


def _lines(path: str | pathlib.Path) -> list[str]:
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []


def _processor() -> str:
    names = (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name"))
    return next(names, platform.machine())


def _memory() -> str | None:
    sizes = (int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    size = next(sizes, None)
    return None if size is None else f"{size / 2**20:.0f} GiB"


def _file_system(directory: str) -> str | None:
    mounts = [line.split()[1:3] for line in _lines("/proc/self/mounts")]
    path = os.path.realpath(directory)
    above = [mount for mount in mounts if os.path.commonpath([mount[0], path]) == mount[0]]
    return max(above, key=lambda mount: len(mount[0]))[1] if above else None


def _read_ahead(directory: str) -> str | None:
    number = os.stat(directory).st_dev
    block = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    for folder in (block, block / ".."):
        lines = _lines(folder / "queue" / "read_ahead_kb")
        if lines:
            return f"{lines[0]} KiB"
    return None


def _copies(pin: bool, size: int = 2**28, repeats: int = 5) -> float:
    import torch

    host = torch.zeros(size, dtype=torch.uint8, pin_memory=pin)
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    seconds = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        device.copy_(host)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return size / 1e9 / statistics.median(seconds)
