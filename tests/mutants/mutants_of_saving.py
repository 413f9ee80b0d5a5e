"""Faults of gathering state and of saving it."""

import torch
from mutation import fault, mutant, where

WHOLE = "test_files_hold_whole_tensors"
TP_SAVED = "test_tensor_parallel_state_is_saved_whole_and_cut_again"
SAVE_AND_LOAD = "test_save_load_and_train_on"


@fault(
    "fresh_save:_remove_old_files",
    where(
        "General DataParallel Zero TensorParallel Gemini",
        "test_nothing_of_an_earlier_save_is_left",
        None,
    ),
)
def leave_the_shards_of_an_earlier_save(remove, *arguments):
    pass


@fault(
    "state_kinds:is_scalar",
    where("HybridZero Zero", "test_saved_by_another_optimizer", None, name="NAdam", shards="one shard"),
    where("TensorParallel", "test_saved_by_another_optimizer", None, name="EveryKindOfState", shards="one shard"),
)
def gather_numbers_too(is_scalar, key, value, parameter_shape=None):
    return key == "step" or not isinstance(value, torch.Tensor)


@fault("low_level_zero:LowLevelZeroOptimizer.gather_state", where("Zero", "test_state_dict_stays_what_it_was", None))
def return_the_very_numbers_that_the_next_step_changes(gather_state, self, master_param, *arguments):
    whole_state, size = gather_state(self, master_param, *arguments)
    return {**whole_state, "step": self.optim.state[master_param]["step"]}, size


@fault("gemini:GeminiOptimizer.state_dict", where("Gemini GeminiGathered", "test_state_dict_stays_what_it_was", None))
def return_the_very_tensors_that_the_next_step_of_Gemini_changes(state_dict, self, *arguments, **options):
    result = state_dict(self, *arguments, **options)
    for param_id, stand_in in self.id_to_fake_params.items():
        result["state"][param_id]["exp_avg"] = self.optim.state[stand_in]["exp_avg"]
    return result


GATHERING = [
    mutant(
        "put slices together in another order",
        "placement:FlatSlice.join",
        "torch.cat(list(parts))",
        "torch.cat(list(parts)[::-1])",
        where("HybridZero Experts", WHOLE, None),
    ),
    mutant(
        "put parts together in another order",
        "placement:PartitionedDimension.join",
        "torch.cat(list(parts), dim=self.dimension)",
        "torch.cat(list(parts)[::-1], dim=self.dimension)",
        where("TensorParallel ExpertsTensorParallel", WHOLE, None),
    ),
    mutant(
        "put parts together along the first dimension",
        "placement:PartitionedDimension.join",
        "torch.cat(list(parts), dim=self.dimension)",
        "torch.cat(list(parts))",
        where("TensorParallel", WHOLE, None),
    ),
    mutant(
        "save the padding",
        "placement:PartitionedDimension.join",
        "return whole.narrow(self.dimension, 0, self.global_shape[self.dimension])",
        "return whole",
        where("TensorParallel ExpertsTensorParallel", WHOLE, None),
    ),
    mutant(
        "put together whatever ranks have",
        "gather:_parts",
        "if not placement.is_part(value.shape):",
        "if False:",
        where("HybridZero TensorParallel ExpertParallel Experts", "test_state_that_is_no_part_is_not_saved", None),
    ),
    mutant(
        "save the slice of one rank",
        "hybrid_parallel:HybridParallelCheckpointIO.gather_from_sharded_optimizer_state",
        "dp_group if use_zero else None)",
        "None)",
        where("HybridZero", WHOLE, None),
    ),
    mutant(
        "change the state that it saves",
        "hybrid_parallel:HybridParallelCheckpointIO.gather_from_sharded_optimizer_state",
        "result = state if inplace else {}",
        "result = state",
        where("HybridZero TensorParallel", SAVE_AND_LOAD, None, shards="one shard"),
    ),
]

EXPERTS = [
    mutant(
        "gather experts from the ranks that divide everything else",
        "moe:MoECheckpointIO.gather_from_sharded_optimizer_state",
        "zero_group = moe_dp_group if is_moe_param else global_dp_group",
        "zero_group = global_dp_group",
        where("ExpertParallel", WHOLE, None),
        hangs=True,
    ),
    mutant(
        "gather everything from the ranks that divide experts",
        "moe:MoECheckpointIO.gather_from_sharded_optimizer_state",
        "zero_group = moe_dp_group if is_moe_param else global_dp_group",
        "zero_group = moe_dp_group",
        where("ExpertParallel", WHOLE, None),
    ),
    mutant(
        "save the experts of the first data parallel rank only",
        "moe:MoECheckpointIO.save_unsharded_optimizer",
        "data_parallel_rank = self.moe_dp_rank if is_moe_param else self.global_dp_rank",
        "data_parallel_rank = self.global_dp_rank",
        where("ExpertParallel", SAVE_AND_LOAD, None, shards="one file"),
    ),
    mutant(
        "save what the first rank holds",
        "moe:MoECheckpointIO.save_unsharded_optimizer",
        "for states in of_ranks for",
        "for states in of_ranks[:1] for",
        where("ExpertParallel", SAVE_AND_LOAD, None, shards="one file"),
    ),
    mutant(
        "save every part of an expert",
        "moe:MoECheckpointIO.save_unsharded_optimizer",
        "and self.tp_rank == 0 and",
        "and",
        where("ExpertsTensorParallel", SAVE_AND_LOAD, None, shards="one file"),
    ),
    mutant(
        "save the groups without their hyperparameters",
        "moe:MoECheckpointIO.save_unsharded_optimizer",
        '{**group, "params": recorded["params"]}',
        '{**optimizer.param_groups[0], "params": recorded["params"]}',
        where("ExpertParallel", SAVE_AND_LOAD, None, shards="one file"),
    ),
]

CHUNKS = [
    mutant(
        "make entries as it saves",
        "gemini:GeminiOptimizer.gather_parts",
        "self.optim.state.get(fake_param, {})",
        "self.optim.state[fake_param]",
        where("Gemini GeminiGathered", "test_saving_makes_no_state", None, shards="many shards"),
        where("Gemini GeminiGathered", "test_saving_makes_no_state", None, shards="one file"),
    ),
    mutant(
        "lay a range one element too far",
        "gemini:GeminiOptimizer.collect_states",
        "flat[start : start + state[key].numel()].copy_(state[key])",
        "flat.roll(-1)[start : start + state[key].numel()].copy_(state[key]); flat = flat.roll(1)",
        where("Gemini GeminiGathered", WHOLE, None),
    ),
    mutant(
        "begin every range at the beginning of its parameter",
        "gemini:GeminiOptimizer.gather_parts",
        "self.get_offsets(param_id)[1]",
        "0",
        where("Gemini", WHOLE, None),
    ),
    mutant(
        "save the range of one rank",
        "gemini:GeminiOptimizer.gather_parts",
        "if not chunk.keep_gathered:",
        "if False:",
        where("Gemini", WHOLE, None),
    ),
    mutant(
        "save no parameter of which the last rank has no element",
        "gemini:GeminiOptimizer.gather_parts",
        "for start, state in parts if state]",
        "for start, state in parts if state and parts[-1][1]]",
        where("Gemini", SAVE_AND_LOAD, None, shards="one shard"),
    ),
    mutant(
        "save one tensor parallel part",
        "gemini:GeminiOptimizer.whole_tensor",
        "gather_distributed_param(tensor).cpu()",
        "tensor.cpu()",
        where("GeminiTensorParallel", TP_SAVED, None, layout_of_chunks="gathered"),
    ),
    mutant(
        "save the padding of a vocabulary",
        "gemini:GeminiOptimizer.whole_tensor",
        "if is_padded_tensor(param):",
        "if False:",
        where("GeminiTensorParallel", TP_SAVED, None, layout_of_chunks="gathered"),
    ),
    mutant(
        "put fused weights together as if they were one",
        "gemini:GeminiOptimizer.whole_tensor",
        "elif is_customized_distributed_tensor(param):",
        "elif False:",
        where("GeminiTensorParallel", "test_tensor_parallel_file_of_unmodified_colossalai", None, name="gpt2"),
    ),
    mutant(
        "save a step that is no tensor",
        "gemini:GeminiOptimizer.collect_states",
        "torch.tensor(float(value), dtype=torch.float32)",
        "value",
        where("Gemini", WHOLE, None),
    ),
    mutant(
        "save entries that hold nothing in one file",
        "gemini:GeminiOptimizer.state_dict",
        "for param_id, state in states.items() if state}",
        "for param_id, state in states.items()}",
        where("Gemini GeminiGathered", "test_saving_makes_no_state", None, shards="one file"),
    ),
    mutant(
        "save entries that hold nothing in shards",
        "gemini:GeminiOptimizer.state_shard",
        "if not state:",
        "if False:",
        where("Gemini GeminiGathered", "test_saving_makes_no_state", None, shards="one shard"),
    ),
    mutant(
        "save a frozen parameter, which is in no chunk",
        "gemini:GeminiOptimizer.collect_states",
        "if is_ddp_ignored(param):",
        "if False:",
        where("Gemini GeminiGathered", "test_parameter_that_was_frozen_when_boosted", None),
    ),
]

SLICES = [
    mutant(
        "save entries that are not there",
        "low_level_zero:LowLevelZeroOptimizer.state_dict_shard",
        "if master_param not in self.optim.state:",
        "if False:",
        where("Zero", "test_saving_makes_no_state", None, shards="one shard"),
    ),
    mutant(
        "save state flat",
        "low_level_zero:LowLevelZeroOptimizer.gather_state",
        "gathered[: working_param.numel()].reshape(working_param.shape)",
        "gathered[: working_param.numel()]",
        where("Zero", WHOLE, None),
    ),
    mutant(
        "save the padding of slices",
        "low_level_zero:LowLevelZeroOptimizer.gather_state",
        "gathered[: working_param.numel()].reshape(working_param.shape)",
        "gathered",
        where("Zero", WHOLE, None),
    ),
    mutant(
        "let the last rank keep what is gathered for the master",
        "low_level_zero:LowLevelZeroOptimizer.gather_state",
        "get_nd_rank(group) == 0",
        "get_nd_rank(group) == get_nd_world_size(group) - 1",
        where("Zero", SAVE_AND_LOAD, None, shards="one shard"),
    ),
    mutant(
        "save no state of the optimizer as a whole",
        "low_level_zero:LowLevelZeroOptimizer.state_dict_shard",
        "if isinstance(key, str)",
        "if False",
        where("Zero", "test_state_of_the_optimizer_itself_is_saved", None, shards="many shards"),
    ),
    mutant(
        "make one shard of everything",
        "low_level_zero:LowLevelZeroOptimizer.state_dict_shard",
        "if shard and shard_size + size > max_shard_size:",
        "if False:",
        where("Zero", "test_nothing_of_an_earlier_save_is_left", None),
    ),
]
