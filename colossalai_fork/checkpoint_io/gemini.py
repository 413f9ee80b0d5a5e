"""Loading and saving for Gemini: each rank holds the state of what falls into its slices of the chunks."""

import copy
from typing import Any, Dict, Iterator, List, Optional, Tuple

import colossalai.booster.plugin.gemini_plugin as upstream
import colossalai.zero.gemini.gemini_optimizer as upstream_optim
import torch
import torch.distributed as dist
from colossalai.accelerator import get_accelerator
from colossalai.checkpoint_io.utils import StateDictSharder, gather_distributed_param
from colossalai.interface import OptimizerWrapper
from colossalai.tensor.d_tensor import (
    get_device_mesh,
    get_global_shape,
    get_sharding_spec,
    init_as_dtensor,
    init_tensor_as_customization_distributed,
    is_customized_distributed_tensor,
    is_distributed_tensor,
)
from colossalai.tensor.padded_tensor import is_padded_tensor
from colossalai.utils import is_ddp_ignored
from torch.distributed import ProcessGroup

from .general_checkpoint_io import GeneralCheckpointIO
from .optimizer_restore.boosted import require_boosted
from .optimizer_restore.destination import Destination
from .optimizer_restore.files.saved_state import in_memory
from .optimizer_restore.gather import in_pinned_memory
from .optimizer_restore.gemini_destination import GeminiDestination
from .optimizer_restore.restore import restore
from .optimizer_restore.state_kinds import is_scalar

__all__ = ["GeminiCheckpointIO", "GeminiOptimizer"]


class GeminiCheckpointIO(upstream.GeminiCheckpointIO, GeneralCheckpointIO):
    """Checkpoint IO for GeminiPlugin."""

    load_sharded_optimizer = GeneralCheckpointIO.load_sharded_optimizer
    load_unsharded_optimizer = GeneralCheckpointIO.load_unsharded_optimizer

    def optimizer_destination(self, optimizer: OptimizerWrapper) -> Destination:
        """Each rank holds ranges of the same optimizer. See GeneralCheckpointIO."""
        require_boosted(optimizer, upstream_optim.GeminiOptimizer)
        return GeminiDestination(optimizer, dist.group.WORLD)

    def optimizer_writers(self) -> Tuple[bool, Optional[ProcessGroup]]:
        """The master writes. See GeneralCheckpointIO."""
        return self.coordinator.is_master(), None


class GeminiOptimizer(upstream_optim.GeminiOptimizer):
    """The methods of Gemini's optimizer that gather its state for saving, and take it back."""

    def gather_parts(self, param_id: int) -> List[Tuple[int, Dict[str, Any]]]:
        """
        Collect what the ranks of a chunk hold of one parameter's state, without making any.

        Must be called on every rank of the chunk's group.

        Args:
            param_id (int): Id of the parameter.

        Returns:
            List[Tuple[int, Dict[str, Any]]]: For each rank that has state of it, where its range begins in the flattened
                parameter, and the state, tensors on CPU.
        """
        fake_param = self.id_to_fake_params.get(param_id)
        # Not by index: the state is a defaultdict, and asking it for an entry would make one.
        state = {} if fake_param is None else self.optim.state.get(fake_param, {})
        part = (self.get_offsets(param_id)[1], {key: _on_cpu(value) for key, value in state.items()})
        chunk = self.chunk_manager.get_chunk(self.id_to_real_params[param_id])
        parts: List[Any] = [part]
        if not chunk.keep_gathered:
            parts = [None] * dist.get_world_size(chunk.torch_pg)
            dist.all_gather_object(parts, part, group=chunk.torch_pg)
        return [(start, state) for start, state in parts if state]

    def whole_tensor(self, param_id: int, flat: torch.Tensor) -> torch.Tensor:
        """
        Undo tensor parallelism and padding. Must be called on every rank of the tensor parallel group.

        Args:
            param_id (int): Id of the parameter.
            flat (torch.Tensor): State shaped like this rank's tensor-parallel part of it, flattened.

        Returns:
            torch.Tensor: The state shaped like the whole parameter, on CPU.
        """
        param = self.id_to_real_params[param_id]
        tensor = flat.reshape(param.shape)
        if is_distributed_tensor(param):
            tensor = tensor.to(get_accelerator().get_current_device())
            init_as_dtensor(tensor, get_device_mesh(param), get_sharding_spec(param), get_global_shape(param))
        elif is_customized_distributed_tensor(param):
            tensor = tensor.to(get_accelerator().get_current_device())
            init_tensor_as_customization_distributed(tensor, shard_fn=param.shard_fn, gather_fn=param.gather_fn)
        tensor = gather_distributed_param(tensor).cpu()
        if is_padded_tensor(param):
            tensor = tensor.narrow(param._padding_dim, 0, param._origin_length)
        # Saving a view would save all that it is a view of.
        return tensor.clone(memory_format=torch.contiguous_format)

    def collect_states(self, param_id: int, only_rank_0: bool = True) -> Dict[str, Any]:
        """
        Gather the whole state of one parameter. Must be called on every rank.

        Args:
            param_id (int): Id of the parameter.
            only_rank_0 (bool): Whether only the first rank of the chunk's group gets it. Defaults to True.

        Returns:
            Dict[str, Any]: The state in float32 and on CPU, ``step`` as the tensor that torch's Adam has. Empty if there is
                none, and on ranks that do not get it.
        """
        param = self.id_to_real_params[param_id]
        if is_ddp_ignored(param):
            # Frozen when the model was boosted: it is in no chunk, and never stepped.
            return {}
        chunk = self.chunk_manager.get_chunk(param)
        is_collector = not only_rank_0 or dist.get_rank(chunk.torch_pg) == 0
        parts = [] if chunk.keep_gathered and not is_collector else self.gather_parts(param_id)
        if not is_collector:
            return {}
        whole_state: Dict[str, Any] = {}
        for key, value in parts[0][1].items() if parts else ():
            if key == "step":
                whole_state[key] = torch.tensor(float(value), dtype=torch.float32)
            elif is_scalar(key, value):
                whole_state[key] = value
            else:
                flat = torch.zeros(param.numel(), dtype=torch.float32)
                for start, state in parts:
                    flat[start : start + state[key].numel()].copy_(state[key])
                whole_state[key] = self.whole_tensor(param_id, flat)
        return whole_state

    def state_dict(self, only_rank_0: bool = True) -> Dict[str, Any]:
        """
        Return the state as native ``state_dict`` would, if this process held all of it. Must be called on every rank.

        Args:
            only_rank_0 (bool): Whether only rank 0 gets the state. Defaults to True.

        Returns:
            Dict[str, Any]: ``state`` and ``param_groups``, tensors on CPU.
        """
        states = {param_id: self.collect_states(param_id, only_rank_0) for param_id in self.id_to_real_params}
        return {
            "param_groups": self.get_param_groups_for_saving(),
            "state": {param_id: state for param_id, state in states.items() if state},
        }

    def state_shard(
        self,
        prefix: str = "",
        max_shard_size: int = 1024,
        only_rank_0: bool = True,
        pinned_state_dicts: Optional[Dict[int, Dict[str, torch.Tensor]]] = None,
    ) -> Iterator[Tuple[Dict[int, Any], float]]:
        """
        Return the state in shards, without the groups. Must be called, and exhausted, on every rank.

        Args:
            prefix (str, optional): Not used.
            max_shard_size (int, optional): The size of a shard in MB; a single larger state gets its own. Defaults to 1024.
            only_rank_0 (bool, optional): Whether only rank 0 gets the state. Defaults to True.
            pinned_state_dicts (Dict[int, Dict[str, torch.Tensor]], optional): Pinned buffers by parameter id.

        Yields:
            Tuple[Dict[int, Any], float]: States by parameter id, and their size in MB. Parameters without state are left
                out, as native ``state_dict`` does; without any state there is one empty shard.
        """
        sharder = StateDictSharder(max_shard_size)
        for param_id in self.id_to_real_params:
            state = self.collect_states(param_id, only_rank_0)
            if not state:
                continue
            if pinned_state_dicts is not None:
                pinned = pinned_state_dicts.setdefault(param_id, {})
                for key, value in state.items():
                    if isinstance(value, torch.Tensor):
                        state[key] = in_pinned_memory(pinned, key, value)
            shard, size = sharder.append_optim_state(param_id, state)
            if shard is not None:
                yield shard, size
        yield sharder.current_block, sharder.current_block_size

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """
        Replace the state and the groups by those of a state dict. Must be called on every rank.

        Args:
            state_dict (Dict[str, Any]): ``state`` and ``param_groups`` in the form of native ``state_dict``, with whole
                tensors. Nothing of it is kept.

        Raises:
            ValueError: If it does not fit the optimizer. Nothing has changed, on any rank.
            RuntimeError: If it is not a state dict. Nothing has changed, on any rank.
        """
        restore(GeminiDestination(self, dist.group.WORLD), lambda: in_memory(state_dict))


def _on_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
