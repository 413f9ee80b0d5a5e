import pytest
import torch
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.checkpoint_io.optimizer_restore.files.index_file import is_sharded
from colossalai.checkpoint_io.optimizer_restore.files.saved_state import in_memory, open_sharded, open_unsharded


def trained():
    params = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    optimizer = torch.optim.Adam(params, lr=0.5)
    for param in params[:2]:
        param.grad = torch.ones(4)
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("form", ["sharded", "one file", "in memory"])
def test_all_forms_say_the_same(tmp_path, form):
    optimizer, path = trained(), str(tmp_path / "optimizer")
    if form == "in memory":
        saved = in_memory(optimizer.state_dict())
    else:
        GeneralCheckpointIO().save_optimizer(optimizer, path, shard=form == "sharded", size_per_shard=0)
        saved = open_sharded(is_sharded(path)[1]) if form == "sharded" else open_unsharded(path)
    assert not saved.problems
    assert saved.groups == optimizer.state_dict()["param_groups"]
    states = {param_id: state for shard in saved.shards for param_id, state in shard.states().items()}
    assert sorted(states) == [0, 1]
    assert all(tuple(state["exp_avg"].shape) == (4,) for state in states.values())
    saved.close()


def test_a_missing_group_file_is_a_problem(tmp_path):
    GeneralCheckpointIO().save_optimizer(trained(), str(tmp_path / "optimizer"), shard=True)
    (tmp_path / "optimizer" / "pytorch_optim_group.bin").unlink()
    saved = open_sharded(is_sharded(tmp_path / "optimizer")[1])
    assert saved.groups is None
    assert "pytorch_optim_group.bin" in str(saved.problems[0])


def test_what_is_no_state_dict_is_kept_whole(tmp_path):
    torch.save({"inner": 1}, tmp_path / "file")
    saved = open_unsharded(tmp_path / "file")
    assert saved.groups is None and saved.content == {"inner": 1}
