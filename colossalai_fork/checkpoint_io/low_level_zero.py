"""Loading and saving for ZeRO stages 1 and 2: each rank holds a flat slice of every parameter's state."""

import copy
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import colossalai.booster.plugin.low_level_zero_plugin as upstream
import colossalai.zero.low_level.low_level_optim as upstream_optim
import torch
import torch.distributed as dist
from colossalai.accelerator import get_accelerator
from colossalai.checkpoint_io import CheckpointIndexFile
from colossalai.checkpoint_io.utils import (
    async_save_state_dict_shards,
    calculate_tensor_size,
    get_optimizer_base_filenames,
    save_param_groups,
    save_state_dict_shards,
)
from colossalai.interface import OptimizerWrapper
from colossalai.zero.low_level._utils import all_gather_into_flat_tensor_nd, get_nd_rank, get_nd_world_size
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from .general_checkpoint_io import GeneralCheckpointIO
from .optimizer_restore.boosted import require_boosted
from .optimizer_restore.destination import Destination
from .optimizer_restore.files.saved_state import in_memory
from .optimizer_restore.gather import in_pinned_memory
from .optimizer_restore.low_level_zero_destination import LowLevelZeroDestination
from .optimizer_restore.restore import restore
from .optimizer_restore.state_kinds import AVERAGED_STATE, is_scalar
from .torch_ddp import TorchDDPCheckpointIO

__all__ = ["LowLevelZeroCheckpointIO", "LowLevelZeroOptimizer"]


class LowLevelZeroCheckpointIO(upstream.LowLevelZeroCheckpointIO, TorchDDPCheckpointIO):
    """Checkpoint IO for LowLevelZeroPlugin."""

    load_sharded_optimizer = GeneralCheckpointIO.load_sharded_optimizer
    load_unsharded_optimizer = GeneralCheckpointIO.load_unsharded_optimizer

    def optimizer_destination(self, optimizer: OptimizerWrapper) -> Destination:
        """Each rank holds slices of the same optimizer. See GeneralCheckpointIO."""
        require_boosted(optimizer, upstream_optim.LowLevelZeroOptimizer)
        return LowLevelZeroDestination(optimizer, dist.group.WORLD)

    def optimizer_writers(self) -> Tuple[bool, Optional[ProcessGroup]]:
        """The master writes. See GeneralCheckpointIO."""
        return self.coordinator.is_master(), None

    def save_sharded_optimizer(
        self,
        optimizer: OptimizerWrapper,
        checkpoint: str,
        gather_dtensor: bool = False,
        prefix: Optional[str] = None,
        size_per_shard: int = 1024,
        use_async: bool = False,
    ) -> None:
        """
        Save the optimizer as an index, a group file and shards of whole tensors; files of an earlier, larger save in the same
        directory are removed. Must be called on every rank; the master writes.

        Args:
            optimizer (OptimizerWrapper): The boosted optimizer.
            checkpoint (str): Path of the directory.
            gather_dtensor (bool): Not used.
            prefix (str, optional): Prefix of the file names.
            size_per_shard (int): The size of a shard in MB.
            use_async (bool): Whether to write safetensors asynchronously.
        """
        require_boosted(optimizer, upstream_optim.LowLevelZeroOptimizer)
        if os.path.isfile(checkpoint):
            self.logger.error(f"cannot save a sharded optimizer to {checkpoint}: there is a file", ranks=[0])
            return
        is_master = self.coordinator.is_master()
        Path(checkpoint).mkdir(parents=True, exist_ok=True)
        states_name, index_name, group_name = get_optimizer_base_filenames(prefix, use_safetensors=use_async)
        index_file = CheckpointIndexFile(checkpoint)
        pinned = self.pinned_state_dicts.setdefault(id(optimizer), {}) if use_async and is_master else None
        shards = optimizer.state_dict_shard(size_per_shard, pinned_state_dicts=pinned, only_on_master=True)
        if use_async:
            total_size, writers = async_save_state_dict_shards(
                shards, checkpoint, index_file, states_name, is_master, state_preprocess=True
            )
            self.async_writers.extend(writers)
        else:
            total_size = save_state_dict_shards(shards, checkpoint, index_file, states_name, is_master)
        if is_master:
            # Native code cannot name entries of parameters that boosting has replaced.
            held = {param for group in optimizer.optim.param_groups for param in group["params"]}
            is_whole = held.issuperset(filter(torch.is_tensor, optimizer.optim.state))
            saved = optimizer.optim.state_dict() if is_whole else optimizer._pack_state({})
            save_param_groups(saved, os.path.join(checkpoint, group_name))
            index_file.append_meta_data("param_groups", group_name)
            index_file.append_meta_data("total_size", total_size)
            index_file.write_index_file(index_name)


class LowLevelZeroOptimizer(upstream_optim.LowLevelZeroOptimizer):
    """The methods of ZeRO's optimizer that gather its state for saving, and take it back."""

    def gather_state(
        self,
        master_param: torch.Tensor,
        only_on_master: bool,
        pinned: Optional[Dict[str, torch.Tensor]] = None,
    ) -> Tuple[Dict[str, Any], float]:
        """
        Gather the slices of one parameter's state.

        Must be called on every rank of the group that divides the parameter.

        Args:
            master_param (torch.Tensor): A master slice that has state.
            only_on_master (bool): Whether ranks other than the first of the group drop what they gathered.
            pinned (Dict[str, torch.Tensor], optional): Pinned buffers by state name, made on first use.

        Returns:
            Tuple[Dict[str, Any], float]: The state with every slice replaced by a whole tensor of the working parameter's
                shape, on CPU, and its size in MB. The state is empty where it was dropped.

        Raises:
            ValueError: If a state is neither one number nor cut as the parameter is. Every rank of the group raises it.
        """
        working_param = self.master_to_working_param[id(master_param)]
        group = self.param_to_pg[working_param]
        keep = not only_on_master or get_nd_rank(group) == 0
        device = get_accelerator().get_current_device()
        whole_state: Dict[str, Any] = {}
        size = 0.0
        for key, value in self.optim.state[master_param].items():
            if is_scalar(key, value):
                if keep:
                    whole_state[key] = copy.deepcopy(value)
                continue
            # Moments of rows and columns are whole only by accident: each rank averages its own slice.
            averaged = key in AVERAGED_STATE and working_param.dim() > 1 and get_nd_world_size(group) > 1
            if averaged or value.numel() != master_param.numel():
                text = "the state {!r} cannot be gathered: its shape {} is not that of the parameter's slice, {}"
                raise ValueError(text.format(key, tuple(value.shape), tuple(master_param.shape)))
            gathered = torch.empty(value.numel() * get_nd_world_size(group), device=device, dtype=value.dtype)
            all_gather_into_flat_tensor_nd(gathered, value.to(device).flatten(), group)
            whole = gathered[: working_param.numel()].reshape(working_param.shape)
            size += calculate_tensor_size(whole)
            if keep and pinned is not None:
                whole_state[key] = in_pinned_memory(pinned, key, whole)
            elif keep:
                whole_state[key] = whole.cpu()
        return whole_state, size

    def state_dict(
        self,
        pinned_state_dicts: Optional[Dict[Any, Dict[str, torch.Tensor]]] = None,
        only_on_master: bool = False,
    ) -> Dict[str, Any]:
        """
        Return the state as data parallelism without ZeRO would have it. Must be called on every rank.

        Args:
            pinned_state_dicts (Dict[Any, Dict[str, torch.Tensor]], optional): Pinned buffers by master slice.
            only_on_master (bool, optional): Whether only the first rank of each parameter's group gets its state.
                Defaults to False.

        Returns:
            Dict[str, Any]: ``state`` and ``param_groups`` in the form of native ``state_dict``, tensors on CPU.
        """
        _check_scalars(self.optim)
        whole_states: Dict[Any, Any] = {}
        held = _params_of(self.optim)
        for key, state in self.optim.state.items():
            if not isinstance(key, torch.Tensor):
                whole_states[key] = copy.deepcopy(state)
            elif key in held:
                pinned = None if pinned_state_dicts is None else pinned_state_dicts.setdefault(key, {})
                whole_states[key], _ = self.gather_state(key, only_on_master, pinned)
        return self._pack_state(whole_states)

    def state_dict_shard(
        self,
        max_shard_size: int = 1024,
        pinned_state_dicts: Optional[Dict[Any, Dict[str, torch.Tensor]]] = None,
        only_on_master: bool = False,
    ) -> Iterator[Tuple[Dict[Any, Any], float]]:
        """
        Return the state in shards, without the groups. Must be called, and exhausted, on every rank.

        Args:
            max_shard_size (int, optional): The size of a shard in MB; a single larger state gets its own. Defaults to 1024.
            pinned_state_dicts (Dict[Any, Dict[str, torch.Tensor]], optional): Pinned buffers by parameter id.
            only_on_master (bool, optional): Whether only the first rank of each parameter's group gets its state.
                Defaults to False.

        Yields:
            Tuple[Dict[Any, Any], float]: States by parameter id, and their size in MB. Parameters without state are left
                out, as native ``state_dict`` does; without any state there is one empty shard.
        """
        _check_scalars(self.optim)
        shard: Dict[Any, Any] = {
            key: copy.deepcopy(state) for key, state in self.optim.state.items() if isinstance(key, str)
        }
        shard_size = 0.0
        master_params = (param for group in self.optim.param_groups for param in group["params"])
        for param_id, master_param in enumerate(master_params):
            if master_param not in self.optim.state:
                continue
            pinned = None if pinned_state_dicts is None else pinned_state_dicts.setdefault(param_id, {})
            state, size = self.gather_state(master_param, only_on_master, pinned)
            if shard and shard_size + size > max_shard_size:
                yield shard, shard_size
                shard, shard_size = {}, 0.0
            shard[param_id] = state
            shard_size += size
        yield shard, shard_size

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """
        Replace the state and the groups by those of a state dict. Must be called on every rank that holds a slice.

        Args:
            state_dict (Dict[str, Any]): ``state`` and ``param_groups`` in the form of native ``state_dict``, with whole
                tensors. Nothing of it is kept.

        Raises:
            ValueError: If it does not fit the optimizer. Nothing has changed, on any rank.
            RuntimeError: If it is not a state dict. Nothing has changed, on any rank.
        """
        groups = list(self.pg_to_param_list)
        # Parameters of several groups, or of a mesh of them, tie more ranks together than any one group has.
        group = groups[0] if len(groups) == 1 and not isinstance(groups[0], tuple) else dist.group.WORLD
        restore(LowLevelZeroDestination(self, group), lambda: in_memory(state_dict))


def _params_of(optimizer: Optimizer) -> Set[torch.Tensor]:
    return {param for group in optimizer.param_groups for param in group["params"]}


def _check_scalars(optimizer: Optimizer) -> None:
    # Where a rank has one number, e.g. for a slice that is all zero, those that have slices would wait for it in vain.
    params = [param for group in optimizer.param_groups for param in group["params"]]
    scalars = [
        (position, str(key))
        for position, param in enumerate(params)
        for key, value in optimizer.state.get(param, {}).items()
        if isinstance(value, torch.Tensor) and is_scalar(key, value)
    ]
    of_ranks: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, scalars)
    differing = set().union(*of_ranks) - set(of_ranks[0]).intersection(*of_ranks)
    if differing:
        text = "the state {!r} of parameter id {} cannot be gathered: it is one number on some ranks, a slice on others"
        position, key = min(differing)
        raise ValueError(text.format(key, position))
