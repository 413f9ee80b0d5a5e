import pytest
import torch
from colossalai.checkpoint_io.optimizer_restore.destination import Destination
from colossalai.checkpoint_io.optimizer_restore.files.saved_state import in_memory
from colossalai.checkpoint_io.optimizer_restore.placement import FlatSlice, Replicated
from colossalai.checkpoint_io.optimizer_restore.plan import Plan
from colossalai.checkpoint_io.optimizer_restore.streamed_state import StreamedState


def trained(steps, lr):
    torch.manual_seed(steps)
    params = [torch.nn.Parameter(torch.ones(3, 5)) for _ in range(3)]
    optimizer = torch.optim.Adam([{"params": params[:2]}, {"params": params[2:]}], lr=lr)
    for _ in range(steps):
        for param in params:
            param.grad = torch.rand(3, 5)
        optimizer.step()
    return optimizer


def plan_for(saved, optimizer, placement=Replicated((3, 5))):
    params = [param for group in optimizer.param_groups for param in group["params"]]
    targets = {index: (param, placement) for index, param in enumerate(params)}
    return Plan(saved.groups, targets, saved.shards, saved.extra)


def test_native_code_takes_streamed_states():
    saved, optimizer, native = trained(1, 0.5), trained(3, 0.1), trained(3, 0.1)
    plan = plan_for(in_memory(saved.state_dict()), optimizer)
    groups = [dict(group) for group in plan.groups]
    states = StreamedState(plan.entries(), Destination(optimizer), groups)
    optimizer.state.clear()
    optimizer.load_state_dict({"state": states, "param_groups": groups})
    states.put_back()

    native.load_state_dict(saved.state_dict())

    ours, theirs = optimizer.state_dict(), native.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for index, state in theirs["state"].items():
        for key, value in state.items():
            torch.testing.assert_close(ours["state"][index][key], value, rtol=0, atol=0)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_reads_its_part(rank):
    saved = trained(1, 0.5)
    placement = FlatSlice(Replicated((3, 5)), rank, 2)
    whole = [state["exp_avg"] for state in saved.state_dict()["state"].values()]
    for entry, expected in zip(plan_for(in_memory(saved.state_dict()), saved, placement).entries(), whole):
        assert torch.equal(entry.state["exp_avg"], placement.cut(expected))
        assert entry.state["exp_avg"].data_ptr() != expected.data_ptr()
        assert entry.state["step"] == 1
