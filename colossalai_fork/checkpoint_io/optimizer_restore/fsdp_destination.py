"""FSDP's optimizer as a destination: checkpoints hold the model's parameters, the optimizer slices of flat ones."""

from functools import partial
from typing import Any, Dict, List, Mapping, Optional

import torch
from torch.distributed import ProcessGroup
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.optim import Optimizer

from .containers import leaves, mapped, owned_leaf
from .destination import Destination
from .errors import Problem, load_error
from .files.reading import read
from .files.saved_state import SavedShard, SavedState
from .files.saved_tensor import SavedTensor
from .flat_parameters import FlatParameters, original_parameters
from .placement import Placement, Replicated
from .state_kinds import is_scalar
from .validation import validate

__all__ = ["FSDPDestination"]


class FSDPDestination(Destination):
    """
    An optimizer of flat parameters.

    FSDP makes its slices from whole tensors, so every rank reads all of the checkpoint, a few flat parameters at a time.
    Nothing here talks to another rank: one that cannot open the checkpoint leaves nobody waiting.

    Args:
        optimizer (Optimizer): The torch optimizer.
        model (torch.nn.Module): The FSDP module.
        ranks (ProcessGroup, optional): The ranks that load together.
    """

    may_have_own_layout = False

    def __init__(self, optimizer: Optimizer, model: torch.nn.Module, ranks: Optional[ProcessGroup] = None) -> None:
        super().__init__(optimizer, ranks)
        self.model = model

    def adapted(self, saved: SavedState) -> SavedState:
        """
        Validate a checkpoint of the model's parameters, and let FSDP make one of this rank's slices of it.

        Args:
            saved (SavedState): The opened checkpoint.

        Returns:
            SavedState: This rank's part, ids being positions in the torch optimizer. It is made as it is read.

        Raises:
            CheckpointLoadError: With everything that is wrong with the checkpoint.
        """
        flat = FlatParameters(original_parameters(self.optimizer, self.model))
        problems: List[Problem] = []
        plan = validate(saved, _Unflattened(self.optimizer, flat), problems)
        if problems or plan is None:
            raise load_error(problems)
        names = flat.names_by_id(plan.groups)
        # An empty entry is a parameter without state, which FSDP has no form for.
        states = {
            names.get(entry.param_id, entry.param_id): entry.state
            for entry in plan.saved_entries()
            if entry.state or entry.param is None
        }
        # Parameters that share a flat one must agree on numbers.
        states = _with_tensors_read(states, only_numbers=True)
        flat.check(plan.groups, states, saved.source, problems)
        if problems:
            raise load_error(problems)
        groups = [dict(group, params=[names[param_id] for param_id in group["params"]]) for group in plan.groups]
        groups = self._sharded({"state": {}, "param_groups": groups})["param_groups"]
        shards = [
            SavedShard(saved.source, partial(self._flattened, {name: states[name] for name in batch}, flat), owned=True)
            for batch in flat.batches(states)
        ]
        for shard in shards:
            shard.sources = [source for opened in plan.shards for source in opened.sources]
        return SavedState(saved.source, groups, saved.groups_source, shards)

    def _flattened(self, states: Dict[Any, Any], flat: FlatParameters) -> Dict[Any, Any]:
        states = _with_tensors_read(states)
        states = {name: _cast(state, flat.dtypes.get(name)) for name, state in states.items()}
        return self._sharded({"state": states})["state"]

    def _sharded(self, whole: Dict[str, Any]) -> Dict[str, Any]:
        settings = FSDP.get_state_dict_type(self.model).optim_state_dict_config
        convert = partial(FSDP.optim_state_dict_to_load, model=self.model, optim=self.optimizer, optim_state_dict=whole)
        if not getattr(settings, "rank0_only", False):
            return convert()
        # Who has set this for saving did not mean that rank 0 alone reads the checkpoint.
        everywhere = (StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig(rank0_only=False))
        with FSDP.state_dict_type(self.model, *everywhere):
            return convert()


class _Whole(Replicated):
    """All of a tensor, to be flattened together with others: whatever is not one number has the parameter's shape."""

    divides = True


class _Unflattened(Destination):
    """
    The same optimizer, seen as one of the model's parameters. A checkpoint is validated against it.

    Args:
        optimizer (Optimizer): The torch optimizer of flat parameters.
        flat (FlatParameters): What these were made of.
    """

    by_position = False

    def __init__(self, optimizer: Optimizer, flat: FlatParameters) -> None:
        super().__init__(optimizer)
        groups = zip(optimizer.param_groups, flat.placeholders())
        self._param_groups = [dict(group, params=params) for group, params in groups]

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        return self._param_groups

    def state_of(self, param: Any) -> Mapping[str, Any]:
        return {}

    def placement(self, param: torch.Tensor) -> Placement:
        return _Whole(param.shape)


def _with_tensors_read(states: Dict[Any, Any], only_numbers: bool = False) -> Dict[Any, Any]:
    def is_wanted(leaf: Any) -> bool:
        return isinstance(leaf, SavedTensor) and (not only_numbers or is_scalar(None, leaf))

    tensors = iter(read([leaf for leaf in leaves(states) if is_wanted(leaf)]))
    # What is in memory already may share it with others.
    rest = (lambda leaf: leaf) if only_numbers else owned_leaf
    return mapped(states, lambda leaf: next(tensors) if is_wanted(leaf) else rest(leaf))


def _cast(state: Dict[str, Any], dtype: Any) -> Dict[str, Any]:
    # As native loading would; FSDP flattens tensors of one dtype only.
    if dtype is None or not dtype.is_floating_point:
        return state
    return {key: value if is_scalar(key, value) else value.to(dtype) for key, value in state.items()}
