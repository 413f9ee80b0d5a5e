"""The contract on GPUs, and the cases that only a GPU can show."""

from typing import Callable

import pytest
import torch

from ..configurations import GeneralContract, LowLevelZeroContract, TorchDDPContract
from ..contract.base import ContractBase, case


def on_gpus(count: int) -> Callable[[type], type]:
    """Class decorator for configurations that need GPUs.

    Args:
        count (int): how many. With fewer, one skipped test takes the place of all cases of the class.

    Returns:
        Callable: the decorator.
    """
    found = torch.cuda.device_count()

    def decorate(cls: type) -> type:
        if found >= count:
            return pytest.mark.cuda(cls)

        def test_all_cases(self) -> None:
            pytest.skip(f"needs {count} CUDA devices, found {found}")

        absent = type(cls.__name__, (), {"__doc__": cls.__doc__, "test_all_cases": test_all_cases})
        return pytest.mark.cuda(absent)

    return decorate


class CudaCases(ContractBase):
    """Where the step counter lives, and which device state is put on."""

    @case(1, rows=(10,))
    def test_step_follows_fused_and_capturable(self) -> None:
        layout = self.layouts[0]
        for number, options in enumerate(({"fused": True}, {"capturable": True}, {"foreach": False})):
            recipe = self.recipe(options=options)
            subject = self.trained(recipe=recipe)
            saved = self.saved(recipe, ids=(0, 1))
            self.must_replace(subject, saved, self.write(self.files(saved, layout), f"checkpoint-{number}"))

    @case(1, rows=(13,))
    def test_state_is_put_on_the_device_of_the_parameter(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved(ids=(0, 1, 2))
        self.must_replace(subject, saved, self.write(self.files(saved, layout)))
        places = {p.device for p in subject.parameters}
        strays = [
            f"{key} is on {value.device}"
            for state in subject.inner.state.values()
            for key, value in state.items()
            if key != "step" and value.device not in places
        ]
        self.verdict(strays)

    @case(4, 5)
    def test_device_memory_is_not_doubled(self) -> None:
        elements = 2**24
        recipe = self.recipe(shapes=((elements,),), groups=((0,),), rates=(0.01,))
        subject = self.trained(recipe=recipe, steps=1)
        saved = self.saved(recipe, steps=1)
        path = self.write(self.files(saved, self.layouts[0], shards=1))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        error = self.load(subject, path)
        self.verdict([] if error is None else [f"refused a good checkpoint: {error}"])
        extra = torch.cuda.max_memory_allocated() - before
        allowed = elements * 4 * 2 // (self.world_size if self.cuts else 1) // 2
        self.verdict([] if extra <= allowed else [f"{extra} bytes of device memory on top, {allowed} allowed"])


@on_gpus(1)
class TestGeneralCuda(CudaCases, GeneralContract):
    """One GPU."""

    device = "cuda"


@on_gpus(2)
class TestTorchDDPCuda(CudaCases, TorchDDPContract):
    """Two GPUs."""

    device = "cuda"
    world_size = 2


@on_gpus(1)
class TestZeroCudaAlone(CudaCases, LowLevelZeroContract):
    """One GPU."""

    device = "cuda"


@on_gpus(2)
class TestZeroCuda(CudaCases, LowLevelZeroContract):
    """Two GPUs."""

    device = "cuda"
    world_size = 2


@on_gpus(1)
class TestZeroOffloadCuda(CudaCases, LowLevelZeroContract):
    """One GPU, state in host memory."""

    device = "cuda"
    offload = True
