"""A model of loose weights that tensor, pipeline and expert parallelism can take apart, and the policy that does so."""

from __future__ import annotations

import torch
from colossalai.shardformer.policies.base_policy import ModulePolicyDescription, Policy
from colossalai.tensor.d_tensor.api import shard_colwise, shard_rowwise, sharded_tensor_to_existing_param
from colossalai.tensor.moe_tensor.api import set_moe_tensor_ep_group

from .subjects import Shape


def cut_dimension(shape: Shape, size: int) -> int | None:
    """Which dimension of a weight tensor parallelism cuts here.

    Args:
        shape (Shape): global shape.
        size (int): size of the tensor parallel group.

    Returns:
        Optional[int]: the first that divides evenly; that of a vector in any case, which is padded; None for none.
    """
    if size == 1:
        return None
    even = (dim for dim, length in enumerate(shape) if length and length % size == 0)
    return next(even, 0 if len(shape) == 1 and shape[0] else None)


def padded(tensor: torch.Tensor, dimension: int, size: int) -> torch.Tensor:
    """Pad with zeros, so that a dimension divides evenly.

    Args:
        tensor (torch.Tensor): the tensor.
        dimension (int): the dimension.
        size (int): what its length has to be a multiple of.

    Returns:
        torch.Tensor: a new tensor.
    """
    shape = list(tensor.shape)
    shape[dimension] = -(-shape[dimension] // size) * size
    result = tensor.new_zeros(shape)
    result[tuple(slice(0, length) for length in tensor.shape)] = tensor
    return result


def part_of(tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """The part of a weight, or of something of its shape, on a tensor parallel rank.

    Args:
        tensor (torch.Tensor): the whole.
        rank (int): the rank.
        size (int): size of the group.

    Returns:
        torch.Tensor: the part.
    """
    dimension = cut_dimension(tuple(tensor.shape), size)
    if dimension is None:
        return tensor
    return padded(tensor, dimension, size).chunk(size, dimension)[rank].clone()


class OneWeight(torch.nn.Module):
    """A weight.

    Args:
        number (int): its id.
        values (torch.Tensor): its values.
    """

    def __init__(self, number: int, values: torch.Tensor) -> None:
        super().__init__()
        self.number = number
        self.global_shape = tuple(values.shape)
        self.weight = torch.nn.Parameter(values)


class ParallelWeights(torch.nn.Module):
    """Weights of given shapes, and a loss in which each takes part on its own.

    Args:
        shapes (Tuple[Shape, ...]): the shapes.
        seed (int): seed of their values.
        dtype (torch.dtype): their dtype.
    """

    def __init__(self, shapes: tuple[Shape, ...], seed: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        values = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
        self.weights = torch.nn.ModuleList(OneWeight(number, each) for number, each in enumerate(values))
        self.tensor_parallel = (0, 1)

    def forward(self, seed: int, ids: tuple[int, ...] | None = None) -> torch.Tensor:
        """A loss. Padding does not take part.

        Args:
            seed (int): seed of its coefficients.
            ids (Optional[Tuple[int, ...]]): weights that take part, None for all.

        Returns:
            torch.Tensor: a number; it needs no gradient if no weight that takes part is here.
        """
        generator = torch.Generator().manual_seed(seed)
        loss = torch.zeros(())
        for each in self.weights:
            coefficients = torch.randn(each.global_shape, generator=generator)
            if each.weight is not None and (ids is None or each.number in ids):
                device = each.weight.device
                real = part_of(torch.ones(each.global_shape, device=device), *self.tensor_parallel)
                value = each.weight.float() * real
                slopes = part_of(coefficients.to(device), *self.tensor_parallel)
                loss = loss + (value * slopes).sum() + value.square().sum() / 2
        return loss


class WeightsPolicy(Policy):
    """How shardformer distributes :class:`ParallelWeights`.

    Args:
        first_expert (Optional[int]): the weights from this one on belong to experts; None if there are none.
    """

    def __init__(self, first_expert: int | None = None) -> None:
        super().__init__()
        self.first_expert = first_expert

    def config_sanity_check(self) -> None:
        """Nothing to check."""

    def preprocess(self) -> torch.nn.Module:
        """Tell the model its place."""
        group = self.shard_config.tensor_parallel_process_group
        if self.shard_config.enable_tensor_parallelism:
            self.model.tensor_parallel = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
        return self.model

    def postprocess(self) -> torch.nn.Module:
        """Nothing to do."""
        return self.model

    def module_policy(self) -> dict[type[torch.nn.Module], ModulePolicyDescription]:
        """What happens to each weight that this stage holds."""
        return {OneWeight: ModulePolicyDescription(param_replacement=[self.distribute])}

    def get_held_layers(self) -> list[torch.nn.Module]:
        """The weights are dealt to the stages in turn."""
        manager = self.pipeline_stage_manager
        return [each for each in self.model.weights if each.number % manager.num_stages == manager.stage]

    def get_shared_params(self) -> list[dict[int, torch.Tensor]]:
        """No weight is in two stages."""
        return []

    def distribute(self, module: OneWeight) -> None:
        """Drop a weight of other ranks' experts, mark one of this rank's, cut what is cut.

        Args:
            module (OneWeight): the weight.
        """
        if self.first_expert is not None and module.number >= self.first_expert:
            manager, group = self.pipeline_stage_manager, self.shard_config.ep_group
            number = module.number // (1 if manager is None else manager.num_stages)
            if number % torch.distributed.get_world_size(group) != torch.distributed.get_rank(group):
                module.weight = None
                return
            set_moe_tensor_ep_group(module.weight, group)
        _, size = self.model.tensor_parallel
        dimension = cut_dimension(module.global_shape, size)
        if dimension is not None:
            whole = padded(module.weight.data, dimension, size)
            shard = shard_rowwise if dimension == 0 else shard_colwise
            sharded_tensor_to_existing_param(
                shard(whole, self.shard_config.tensor_parallel_process_group), module.weight
            )
