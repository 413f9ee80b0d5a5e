import colossalai
import pytest
import torch
import torch.distributed as dist
from colossalai.booster.plugin.hybrid_parallel_plugin import get_param_info
from colossalai.checkpoint_io import MoECheckpointIO
from colossalai.interface import OptimizerWrapper
from colossalai.tensor.moe_tensor.api import set_moe_tensor_ep_group
from colossalai.testing import check_state_dict_equal, parameterize, rerun_if_address_is_in_use, spawn
from torch.optim import Adam
from utils import shared_tempdir

# These tests need no accelerator.

SHAPE = (3, 5)


class FlatOptimizer(OptimizerWrapper):
    """An optimizer over this rank's half of each parameter, as ZeRO has it."""

    def __init__(self, with_gradient=(), steps=0, lr=0.1, expert_lr=0.01):
        params = [torch.nn.Parameter(torch.ones(SHAPE)) for _ in range(4)]
        for param in params[2:]:
            set_moe_tensor_ep_group(param, dist.group.WORLD)
        self.param_info = get_param_info(Adam([{"params": params[:2]}, {"params": params[2:]}]))
        self.params = params
        self.param_to_pg = {param: dist.group.WORLD for param in params}
        self.masters = [torch.nn.Parameter(torch.ones(8)) for _ in params]
        super().__init__(Adam([{"params": self.masters[:2], "lr": lr}, {"params": self.masters[2:], "lr": expert_lr}]))
        for step in range(steps):
            for index in with_gradient:
                self.masters[index].grad = torch.full((8,), 1.0 + step + index)
            self.optim.step()

    def get_master_to_working_map(self):
        return {id(master): param for master, param in zip(self.masters, self.params)}


def make_checkpoint_io():
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    world = dist.group.WORLD
    return MoECheckpointIO(world, alone, alone, alone, ep_group=alone, moe_dp_group=world, zero_stage=1)


@parameterize("shard", [False, True])
@parameterize("with_gradient", [(), (1, 2), (0, 1, 2, 3)])
def check_state_is_replaced_and_cut_once(shard, with_gradient):
    saved = FlatOptimizer(with_gradient, steps=1, lr=0.5, expert_lr=0.05)
    optimizer = FlatOptimizer(range(4), steps=3)
    checkpoint_io = make_checkpoint_io()
    with shared_tempdir() as tempdir:
        checkpoint_io.save_optimizer(saved, f"{tempdir}/optimizer", shard=shard)
        dist.barrier()
        checkpoint_io.load_optimizer(optimizer, f"{tempdir}/optimizer")
    assert set(optimizer.optim.state) == {optimizer.masters[index] for index in with_gradient}
    assert [group["lr"] for group in optimizer.optim.param_groups] == [0.5, 0.05]
    for index in with_gradient:
        state, saved_state = (each.optim.state[each.masters[index]] for each in (optimizer, saved))
        # 15 elements, of which the first rank has 8 and the second 7 and a padding
        own = 8 - dist.get_rank()
        for key in ("exp_avg", "exp_avg_sq"):
            assert state[key].shape == (8,)
            torch.testing.assert_close(state[key][:own], saved_state[key][:own])
        check_state_dict_equal({"step": state["step"]}, {"step": saved_state["step"]})
    for master in optimizer.masters:
        master.grad = torch.ones(8)
    optimizer.optim.step()


@parameterize("shard", [False, True])
def check_other_groups_are_refused(shard):
    saved, optimizer = FlatOptimizer(range(4), steps=1, lr=0.5), FlatOptimizer(range(4), steps=3)
    saved.optim.param_groups.pop()
    checkpoint_io = make_checkpoint_io()
    with shared_tempdir() as tempdir:
        checkpoint_io.save_optimizer(saved, f"{tempdir}/optimizer", shard=shard)
        dist.barrier()
        with pytest.raises(ValueError):
            checkpoint_io.load_optimizer(optimizer, f"{tempdir}/optimizer")
    assert [group["lr"] for group in optimizer.optim.param_groups] == [0.1, 0.01]
    assert len(optimizer.optim.state) == 4


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    check_state_is_replaced_and_cut_once()
    check_other_groups_are_refused()


@pytest.mark.dist
@rerun_if_address_is_in_use()
def test_moe_optimizer_state():
    spawn(run_dist, 2)
