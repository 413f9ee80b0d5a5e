import colossalai
import torch
import torch.distributed as dist
from colossalai.checkpoint_io.optimizer_restore.agreement import VALIDATED, agree, fingerprint
from colossalai.checkpoint_io.optimizer_restore.destination import Destination
from colossalai.checkpoint_io.optimizer_restore.errors import Problem
from colossalai.checkpoint_io.optimizer_restore.files.saved_state import in_memory
from colossalai.checkpoint_io.optimizer_restore.own_layout import has_own_layout
from colossalai.testing import rerun_if_address_is_in_use, spawn


class Counting(torch.optim.SGD):
    def state_dict(self):
        return {"inner": super().state_dict(), "count": 1}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict["inner"])


def test_own_layouts_are_told():
    params = [torch.nn.Parameter(torch.ones(3))]
    for optimizer_class, own in ((torch.optim.SGD, False), (Counting, True)):
        optimizer = optimizer_class(params, lr=0.1)
        assert has_own_layout(Destination(optimizer), in_memory(optimizer.state_dict())) is own


def test_equal_content_has_equal_fingerprints():
    assert fingerprint({"a": [1, {2, 3}]}) == fingerprint({"a": [1, {3, 2}]}) != fingerprint({"a": [1, {2, 4}]})


def run_dist(rank, world_size, port):
    colossalai.launch(rank=rank, world_size=world_size, port=port, host="localhost")
    group = dist.group.WORLD
    assert agree([], VALIDATED, group, digest=5) == []
    found = agree([Problem("a shard is missing", damaged=True)] if rank == 1 else [], VALIDATED, group)
    assert [(problem.rank, problem.text) for problem in found] == [(1, "a shard is missing")]
    assert len(agree([], VALIDATED, group, digest=rank)) == world_size


def test_a_rank_without_processes_is_alone():
    problems = [Problem("a shard is missing", damaged=True)]
    assert agree(problems, VALIDATED) is problems


@rerun_if_address_is_in_use()
def test_every_rank_learns_the_outcome():
    spawn(run_dist, 2)
