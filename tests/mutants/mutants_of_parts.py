"""Faults of choosing what a rank takes of a saved state: slices, parts, stages, experts."""

import torch
from mutation import around, everywhere, instead, mutant, replacing, where

from colossalai_fork.checkpoint_io.optimizer_restore.files.reading import read
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor
from colossalai_fork.checkpoint_io.optimizer_restore.placement import FlatSlice
from colossalai_fork.checkpoint_io.optimizer_restore.plan import WHOLE
from colossalai_fork.checkpoint_io.optimizer_restore.state_kinds import is_tensor

TP_SAVED = "test_tensor_parallel_state_is_saved_whole_and_cut_again"

CUTTING = "Zero TensorParallel ExpertParallel Gemini"


def held_by(rank_of):
    def change(original):
        def held(self, tensor):
            return original(FlatSlice(self.whole, rank_of(self), self.world_size), tensor)

        return held

    return change


def padding(made_of):
    def change(original):
        def padded(tensor, dimension, length):
            return made_of(original(tensor, dimension, length), tensor, dimension)

        return padded

    return change


def ones(result, tensor, dimension):
    there = tensor.shape[dimension]
    result = result.clone()
    result.narrow(dimension, there, result.shape[dimension] - there).fill_(1)
    return result


def in_front(result, tensor, dimension):
    return torch.roll(result, result.shape[dimension] - tensor.shape[dimension], dimension)


def read_whole(entry):
    if isinstance(entry.state, dict):
        read([value for value in entry.state.values() if isinstance(value, SavedTensor)])


def without_placement(original):
    return lambda self, key, value, placement=None: original(self, key, value)


SLICES = [
    replacing(
        "take another rank's slice",
        "placement:FlatSlice.held",
        held_by(lambda self: self.world_size - 1 - self.rank),
        where("Zero HybridZero Experts", "test_full_checkpoint"),
    ),
    replacing(
        "take the first rank's slice",
        "placement:FlatSlice.held",
        held_by(lambda self: 0),
        where("Zero HybridZero Experts", "test_full_checkpoint"),
    ),
    replacing(
        "pad with ones",
        "placement:padded",
        padding(ones),
        where("Zero HybridZero Experts TensorParallel", "test_full_checkpoint"),
    ),
    replacing(
        "pad in front",
        "placement:padded",
        padding(in_front),
        where("Zero HybridZero Experts TensorParallel", "test_full_checkpoint"),
    ),
    replacing(
        "do not pad",
        "placement:padded",
        padding(lambda result, tensor, dimension: tensor),
        where("Zero HybridZero Experts TensorParallel", "test_full_checkpoint"),
    ),
    replacing("do not cut", "plan:_part", instead(WHOLE), where(CUTTING, "test_full_checkpoint")),
    replacing(
        "cut numbers too",
        "state_kinds:is_scalar",
        lambda original: lambda key, value, shape=None: key == "step" or not is_tensor(value),
        where("Zero TensorParallel ExpertParallel FSDP", "test_scalar_state"),
    ),
    replacing(
        "read whole tensors for a part of them",
        "plan:_wanted",
        around(read_whole),
        where("Zero HybridZero TensorParallel Gemini", "test_reads_its_own_part_only", None),
    ),
    replacing(
        "cut what a load hook was given cut",
        "destination:Destination.for_local_state",
        lambda original: lambda self: self,
        where("Zero TensorParallel ExpertParallel", "test_hook_that_changes_the_state_dict"),
    ),
    replacing(
        "cut ranges of what a load hook was given",
        "gemini_destination:GeminiDestination.for_local_state",
        lambda original: lambda self: self,
        where("Gemini", "test_hook_that_changes_the_state_dict"),
    ),
    replacing(
        "let collections of tensors stay whole where tensors are cut",
        "state_check:_ParameterCheck._check_leaves",
        without_placement,
        where(CUTTING + " FSDP", "test_collection_of_tensors_that_cannot_be_cut"),
    ),
    mutant(
        "take the slice of a group of other ranks",
        "low_level_zero_destination:LowLevelZeroDestination.placement",
        "int(get_nd_rank(group)), get_nd_world_size(group)",
        "0, 1",
        where("Zero", "test_full_checkpoint"),
    ),
]

PARTS = [
    mutant(
        "take another rank's part",
        "placement:PartitionedDimension.held",
        "start = min(self.rank * length",
        "start = min((self.world_size - 1 - self.rank) * length",
        where("TensorParallel ExpertsTensorParallel", "test_full_checkpoint"),
        where("GeminiTensorParallel", TP_SAVED, None, layout_of_chunks="gathered"),
    ),
    mutant(
        "take the part of the rank among all ranks",
        "hybrid_parallel_destination:HybridParallelDestination.placement",
        "global_shape, self.tp_rank, self.tp_size)",
        "global_shape, 0, self.tp_size)",
        where("TensorParallel ExpertsTensorParallel", "test_full_checkpoint"),
    ),
    mutant(
        "guess the dimension from the shapes, which padding may make alike",
        "tensor_parallel:partitioned_dimension",
        "if not is_distributed_tensor(param):",
        "if True:",
        where("TensorParallel ExpertsTensorParallel", "test_small_and_empty_parameters"),
    ),
]

ROWS_AND_COLUMNS = [
    mutant(
        "take the average over the other dimension",
        "state_kinds:placement_of_state",
        "AVERAGED_STATE[key] % dims",
        "(AVERAGED_STATE[key] + 1) % dims",
        everywhere("test_moments_of_rows_and_columns", but="Zero ExpertParallel Gemini FSDP"),
        where("TensorParallel", "test_saved_by_an_optimizer_of_rows_and_columns", None, name="RowsAndColumns"),
    ),
    mutant(
        "cut moments of rows and columns as the parameter is cut",
        "state_kinds:placement_of_state",
        "if key not in AVERAGED_STATE or dims < 2:",
        "if True:",
        everywhere("test_moments_of_rows_and_columns", but="Zero ExpertParallel Gemini FSDP"),
        where("TensorParallel", "test_saved_by_an_optimizer_of_rows_and_columns", None, name="RowsAndColumns"),
    ),
    mutant(
        "cut along the dimension that the parameter is cut along, though one before it is gone",
        "placement:PartitionedDimension.averaged",
        "dimension = self.dimension - (dim < self.dimension)",
        "dimension = self.dimension",
        where("TensorParallel", "test_moments_of_rows_and_columns"),
    ),
    mutant(
        "cut moments that are averaged over the dimension that is cut",
        "placement:PartitionedDimension.averaged",
        "if self.dimension is None or dim == self.dimension:",
        "if self.dimension is None:",
        where("TensorParallel", "test_moments_of_rows_and_columns"),
    ),
    mutant(
        "keep moments of rows and columns whole on every rank",
        "placement:PartitionedDimension.averaged",
        "if self.dimension is None or dim == self.dimension:",
        "if True:",
        where("TensorParallel", "test_moments_of_rows_and_columns"),
    ),
    mutant(
        "keep moments of rows and columns of what is flat",
        "placement:Placement.averaged",
        "if self.keeps_everything else None",
        "if True else None",
        where("Zero ExpertParallel Gemini FSDP", "test_moments_of_rows_and_columns_that_cannot_be_cut"),
    ),
    mutant(
        "put what is one long on every rank into one",
        "placement:PartitionedDimension.join",
        "if parts[0].shape[self.dimension] != self._local_shape[self.dimension]:",
        "if False:",
        where("TensorParallel", "test_saved_by_an_optimizer_of_rows_and_columns", None, name="Adafactor"),
    ),
    mutant(
        "refuse what was one long on every rank",
        "placement:PartitionedDimension.fits_reduced",
        "length in (whole, self.world_size)",
        "length == whole",
        where("TensorParallel", "test_saved_by_an_optimizer_of_rows_and_columns", None, name="Adafactor"),
    ),
]

STAGES = [
    mutant(
        "take the first saved ids on every stage",
        "hybrid_parallel_destination:HybridParallelDestination.local_groups",
        '[self._saved_id(param) for param in present["params"]]',
        'groups[position]["params"][: len(present["params"])]',
        where("Pipeline ExpertParallel", "test_full_checkpoint"),
    ),
    mutant(
        "take the next id on record",
        "hybrid_parallel_destination:HybridParallelDestination._saved_id",
        "return self._record",
        "return 1 + self._record",
        where("Pipeline TensorParallel ExpertParallel", "test_full_checkpoint"),
    ),
    mutant(
        "want all parameters on every stage",
        "hybrid_parallel_destination:HybridParallelDestination.local_groups",
        'built_with = [group["params"] for group in self._record["param_groups"]]',
        'built_with = [[self._saved_id(each) for each in group["params"]] for group in self.optimizer.param_groups]',
        where("Pipeline", "test_full_checkpoint"),
    ),
    mutant(
        "ignore that saved ids stand for other parameters",
        "hybrid_parallel_destination:HybridParallelDestination.local_groups",
        "if pairs:",
        "if False:",
        where("TensorParallel Pipeline ExpertParallel", "test_id_twice_in_the_groups"),
    ),
    mutant(
        "take groups that only other stages have state of for unknown",
        "validation:validate",
        'known = {param_id for group in saved.groups for param_id in group["params"]}',
        "known = set()",
        where("Pipeline ExpertParallel Gemini", "test_full_checkpoint"),
    ),
    mutant(
        "ignore ids of the index that no group has",
        "validation:_check_index",
        "if isinstance(param_id, int) and param_id not in known:",
        "if False:",
        everywhere("test_id_in_no_group_in_a_shard_of_its_own"),
    ),
    mutant(
        "take what two stages have saved for a fault",
        "saved_state:open_sharded",
        "_note_spare_ids(index, list(shards.values()))",
        "pass",
        where("TiedPipeline", "test_save_load_and_train_on", None, shards="one shard"),
    ),
    mutant(
        "check names by ids that the stage does not have",
        "validation:_check_names",
        "if len(ids) != len(saved):",
        "if False:",
        where("Pipeline", "test_parameter_names_in_another_order"),
    ),
]

EXPERTS = [
    mutant(
        "divide experts among the ranks that divide everything else",
        "hybrid_parallel_destination:HybridParallelDestination.placement",
        "group = self._dividing_groups[working_param]",
        "group = max(self._dividing_groups.values(), key=get_nd_world_size)",
        where("ExpertParallel", "test_full_checkpoint"),
    ),
    mutant(
        "take the first slice of experts on every rank",
        "hybrid_parallel_destination:HybridParallelDestination.placement",
        "int(get_nd_rank(group))",
        "0",
        where("Experts HybridZero", "test_full_checkpoint"),
    ),
    mutant(
        "take flat state of experts for damage",
        "moe_destination:SavedUngathered._saved_shape",
        "(candidate, (number_of_elements(candidate),))",
        "(candidate,)",
        where("ExpertParallel", "test_saved_by_unmodified_colossalai", None, steps=3, shards="one shard"),
    ),
    mutant(
        "take what may be flat for divided",
        "moe_destination:SavedUngathered.keeps_everything",
        "return self.placed.keeps_everything",
        "return False",
        where("ExpertsWithoutZero", "test_collection_of_tensors"),
        where("ExpertsWithoutZero", "test_state_of_a_name_that_nobody_knows_has_another_shape"),
    ),
]
