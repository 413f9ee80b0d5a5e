"""Loading for FSDP: the torch optimizer holds flat parameters, each a slice of several of the model's parameters."""

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Union

import colossalai.booster.plugin.torch_fsdp_plugin as upstream
import torch.distributed as dist
from colossalai.interface import OptimizerWrapper
from torch.distributed import ProcessGroup
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType

from .destination import Destination
from .errors import Problem, load_error
from .fsdp_destination import FlattenedDestination
from .general_checkpoint_io import GeneralCheckpointIO
from .restore import restore
from .saved_state import SavedState, in_memory, open_sharded, open_unsharded
from .validation import validate

__all__ = ["TorchFSDPCheckpointIO"]


class TorchFSDPCheckpointIO(upstream.TorchFSDPCheckpointIO, GeneralCheckpointIO):
    """
    Checkpoint IO for TorchFSDPPlugin.

    FSDP makes its flat slices from whole tensors, so every rank reads all of the checkpoint, and has its own part of it in
    host memory before the old state is released.
    """

    def loading_group(self) -> ProcessGroup:
        """
        Returns:
            ProcessGroup: All ranks: each holds a part of the same optimizer.
        """
        return dist.group.WORLD

    def load_sharded_optimizer(
        self,
        optimizer: OptimizerWrapper,
        index_file_path: Union[str, Path],
        prefix: Optional[str] = None,
        low_cpu_mem_mode: bool = True,
        num_threads: int = 1,
    ) -> None:
        """
        Load sharded optimizer with the given path to index file. Must be called on every rank.

        Args:
            optimizer (OptimizerWrapper): The boosted optimizer.
            index_file_path (Union[str, Path]): Path to the index file.
            prefix (str, optional): Not used, the index names the files.
            low_cpu_mem_mode (bool): Whether to do without another copy of this rank's part. Default: True.
            num_threads (int): Number of threads that copy if not ``low_cpu_mem_mode``. Default: 1.

        Raises:
            ValueError: If the checkpoint does not fit the optimizer. Nothing has changed, on any rank.
            RuntimeError: If the checkpoint is damaged. The message says what the optimizer holds.
        """
        assert isinstance(optimizer, upstream.FSDPOptimizerWrapper), "Boost the optimizer before loading it"
        opened = partial(flattened, optimizer, partial(open_sharded, index_file_path))
        restore(Destination(optimizer.optim), opened, self.loading_group(), low_cpu_mem_mode, num_threads)

    def load_unsharded_optimizer(
        self,
        optimizer: OptimizerWrapper,
        checkpoint: Union[str, Path],
        low_cpu_mem_mode: bool = True,
        num_threads: int = 1,
    ) -> None:
        """
        Load optimizer from a single file with the given path. Must be called on every rank.

        Args:
            optimizer (OptimizerWrapper): The boosted optimizer.
            checkpoint (Union[str, Path]): Path to the file.
            low_cpu_mem_mode (bool): Whether to do without another copy of this rank's part. Default: True.
            num_threads (int): Number of threads that copy if not ``low_cpu_mem_mode``. Default: 1.

        Raises:
            ValueError: If the checkpoint does not fit the optimizer. Nothing has changed, on any rank.
            RuntimeError: If the checkpoint is damaged. The message says what the optimizer holds.
        """
        assert isinstance(optimizer, upstream.FSDPOptimizerWrapper), "Boost the optimizer before loading it"
        opened = partial(flattened, optimizer, partial(open_unsharded, checkpoint))
        restore(Destination(optimizer.optim), opened, self.loading_group(), low_cpu_mem_mode, num_threads)


def flattened(optimizer: OptimizerWrapper, open_saved: Callable[[], SavedState]) -> SavedState:
    """
    Open a checkpoint of the model's parameters as one of this rank's slices of flat parameters.

    Talks to no other rank, so that a rank which cannot open the checkpoint leaves nobody waiting.

    Args:
        optimizer (OptimizerWrapper): The boosted optimizer. Not changed.
        open_saved (Callable[[], SavedState]): Opens the checkpoint.

    Returns:
        SavedState: This rank's part in memory, ids being positions in the torch optimizer.

    Raises:
        CheckpointLoadError: With everything that is wrong with the checkpoint.
    """
    saved = open_saved()
    model = optimizer.unwrap_model().unwrap()
    destination = FlattenedDestination(optimizer.optim, model)
    problems: List[Problem] = []
    plan = validate(saved, destination, problems)
    if problems or plan is None:
        raise load_error(problems)
    names = destination.names_by_id(plan.groups)
    states: Dict[Any, Any] = {}
    for param_id, param, state in plan.states():
        # An empty entry is a parameter without state, which FSDP has no form for.
        if state:
            states[names.get(param_id, param_id)] = destination.cast(param, state)
    destination.check_flat_parameters(plan.groups, states, saved.source, problems)
    if problems:
        raise load_error(problems)
    groups = [dict(group, params=[names[param_id] for param_id in group["params"]]) for group in plan.groups]
    return in_memory(_sharded({"state": states, "param_groups": groups}, model, optimizer), saved.source)


def _sharded(whole: Dict[str, Any], model: FSDP, optimizer: OptimizerWrapper) -> Dict[str, Any]:
    settings = FSDP.get_state_dict_type(model).optim_state_dict_config
    if not getattr(settings, "rank0_only", False):
        return FSDP.optim_state_dict_to_load(model=model, optim=optimizer.optim, optim_state_dict=whole)
    # Who has set this for saving did not mean that rank 0 alone reads the checkpoint.
    everywhere = (StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig(rank0_only=False))
    with FSDP.state_dict_type(model, *everywhere):
        return FSDP.optim_state_dict_to_load(model=model, optim=optimizer.optim, optim_state_dict=whole)
