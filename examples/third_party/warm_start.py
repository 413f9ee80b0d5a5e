"""A checkpoint IO class of one's own, with a fault.

It means well: where the checkpoint has nothing for a parameter, the optimizer keeps what it has. So the same checkpoint
leads to other training, depending on what the optimizer did before.
"""

from colossalai_fork.checkpoint_io import GeneralCheckpointIO


class WarmStartCheckpointIO(GeneralCheckpointIO):
    """Checkpoint IO that keeps the state of parameters that the checkpoint lacks."""

    def load_unsharded_optimizer(self, optimizer, checkpoint, low_cpu_mem_mode=True, num_threads=1):
        before = dict(optimizer.state)
        super().load_unsharded_optimizer(optimizer, checkpoint, low_cpu_mem_mode, num_threads)
        for parameter, state in before.items():
            # The fault.
            optimizer.state.setdefault(parameter, state)
