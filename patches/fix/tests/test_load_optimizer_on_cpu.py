import pytest
import torch
from colossalai.accelerator import CpuAccelerator, get_accelerator
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.testing import check_state_dict_equal
from torch.optim import Adam


def build(steps):
    params = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    optimizer = Adam(params)
    for _ in range(steps):
        for param in params:
            param.grad = torch.ones(4)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("low_cpu_mem_mode", [False, True])
def test_loading_needs_no_accelerator(tmp_path, shard, low_cpu_mem_mode):
    saved, optimizer = build(steps=2), build(steps=1)
    checkpoint = str(tmp_path / "optimizer")
    GeneralCheckpointIO().save_optimizer(saved, checkpoint, shard=shard, size_per_shard=0)

    GeneralCheckpointIO().load_optimizer(optimizer, checkpoint, low_cpu_mem_mode=low_cpu_mem_mode)

    check_state_dict_equal(optimizer.state_dict(), saved.state_dict())


def test_a_cpu_has_nothing_to_wait_for_or_to_empty():
    accelerator = get_accelerator() if get_accelerator().name == "cpu" else CpuAccelerator()
    accelerator.synchronize()
    accelerator.empty_cache()
