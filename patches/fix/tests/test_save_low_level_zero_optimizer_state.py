import colossalai
import pytest
import torch
import torch.distributed as dist
from colossalai.booster.plugin.low_level_zero_plugin import LowLevelZeroCheckpointIO
from colossalai.checkpoint_io import CheckpointIndexFile
from colossalai.testing import parameterize, rerun_if_address_is_in_use, spawn
from colossalai.zero.low_level import LowLevelZeroOptimizer
from torch.optim import SGD, Adam
from utils import shared_tempdir

# These tests need no accelerator.

SHAPE = (3, 5)


def make_zero(optimizer_class, with_gradient, **kwargs):
    # A real one takes an accelerator. Saving asks it for its optimizer, the parameters and their process groups.
    params = [torch.nn.Parameter(torch.ones(SHAPE)) for _ in range(3)]
    masters = [torch.nn.Parameter(torch.ones(8)) for _ in params]
    optimizer = LowLevelZeroOptimizer.__new__(LowLevelZeroOptimizer)
    optimizer.optim = optimizer_class(masters, **kwargs)
    optimizer.master_to_working_param = {id(master): param for master, param in zip(masters, params)}
    optimizer.grad_handles = []
    optimizer.param_to_pg = {param: dist.group.WORLD for param in params}
    for index in with_gradient:
        masters[index].grad = torch.arange(8.0) + 8 * dist.get_rank()
    optimizer.optim.step()
    return optimizer


@parameterize("with_momentum", [False, True])
@parameterize("with_gradient", [(), (1,), (0, 1, 2)])
def check_what_has_state_is_saved(with_momentum, with_gradient):
    optimizer = make_zero(Adam, with_gradient) if with_momentum else make_zero(SGD, with_gradient, lr=0.1)
    with shared_tempdir() as tempdir:
        LowLevelZeroCheckpointIO().save_optimizer(optimizer, f"{tempdir}/optimizer", shard=True)
        dist.barrier()
        weight_map = CheckpointIndexFile.from_file(f"{tempdir}/optimizer/pytorch_optim.bin.index.json").weight_map
        states = torch.load(f"{tempdir}/optimizer/pytorch_optim-00001.bin")
    assert set(states) == {int(param_id) for param_id in weight_map}
    if with_momentum:
        assert set(states) == set(with_gradient)
        for state in states.values():
            # both ranks' halves, without the padding
            torch.testing.assert_close(state["exp_avg"], (torch.arange(15.0) * 0.1).view(SHAPE))


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_what_has_state_is_saved()


@pytest.mark.dist
@rerun_if_address_is_in_use()
def test_low_level_zero_optimizer_state():
    spawn(run_dist, 2)
