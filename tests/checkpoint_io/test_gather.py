"""Gathering of state that ranks have averaged: told apart by its bytes, in whatever layout it lies in memory."""

import pytest
import torch
import torch.distributed

from colossalai_fork.gate.workers.outcomes import Status
from colossalai_fork.gate.workers.pool import WorkerPool
from colossalai_fork.gate.workers.worker import Call


class Gathering:
    """Runs on two ranks that cut a parameter of one row and four columns between its columns."""

    def gathers(self, agree):
        """Gather the average of each row, one element that does not lie alone in its memory."""
        from colossalai_fork.checkpoint_io.optimizer_restore.gather import gather_parts
        from colossalai_fork.checkpoint_io.optimizer_restore.placement import PartitionedDimension

        placement = PartitionedDimension((1, 4), (1, 2), self.rank, 2, 1)
        average = torch.full((3,), 1.0 if agree else float(self.rank))[::2][:1]
        assert average.stride() == (2,)
        state = {"exp_avg_sq_row": average}
        if agree:
            assert gather_parts(state, placement, torch.distributed.group.WORLD) == state
        else:
            with pytest.raises(ValueError, match="'exp_avg_sq_row' cannot be gathered: each rank has averaged its own"):
                gather_parts(state, placement, torch.distributed.group.WORLD)

    gathers.run_here = gathers


@pytest.mark.parametrize("agree", [True, False])
def test_an_average_of_one_element(tmp_path, agree):
    pool = WorkerPool()
    try:
        call = Call(__name__, __file__, "Gathering", "gathers", {"agree": agree}, str(tmp_path))
        outcome = pool.get(2, overlay=False).run(call)
    finally:
        pool.close()
    assert outcome.status is Status.HELD, outcome.describe()
