"""Faults of choosing what a rank takes where parameters are laid end to end: Gemini's chunks, FSDP's flat parameters."""

from mutation import mutant, where

TP_SAVED = "test_tensor_parallel_state_is_saved_whole_and_cut_again"

CHUNKS = [
    mutant(
        "take a range one element too late",
        "gemini_destination:GeminiDestination.placement",
        "start, start + length)",
        "start + 1, start + 1 + length)",
        where("Gemini GeminiGathered", "test_full_checkpoint"),
    ),
    mutant(
        "take the beginning of every parameter",
        "gemini_destination:GeminiDestination.placement",
        "start, start + length)",
        "0, length)",
        where("Gemini", "test_full_checkpoint"),
    ),
    mutant(
        "take the ids of parameters that lie in other ranks' slices",
        "gemini_destination:GeminiDestination.local_groups",
        "if own_id in held]",
        "if True]",
        where("Gemini", "test_full_checkpoint"),
    ),
    mutant(
        "want no more parameters than this rank has elements of",
        "gemini_destination:GeminiDestination.local_groups",
        'built_with = [group["params"] for group in self.gemini_optimizer.param_groups_backup]',
        'built_with = [group["params"] for group in self.gemini_optimizer.param_groups]',
        where("Gemini", "test_full_checkpoint"),
    ),
    mutant(
        "keep moments in the precision of the model",
        "gemini_destination:GeminiDestination.state_dtype",
        "if self.gemini_optimizer.module.master_weights else chunk",
        "if False else chunk",
        where("Gemini GeminiGathered", "test_full_checkpoint"),
    ),
    mutant(
        "keep entries that hold nothing",
        "restore:_Loading.load",
        "if self.destination.empty_is_absent:",
        "if False:",
        where("Gemini GeminiGathered", "test_entries_that_hold_nothing"),
        where("Gemini", "test_parameter_without_saved_state_has_none"),
    ),
    mutant(
        "cut fused weights in one piece",
        "gemini_destination:GeminiDestination._tensor_parallel_part",
        "if is_customized_distributed_tensor(param):",
        "if False:",
        where("GeminiTensorParallel", "test_tensor_parallel_file_of_unmodified_colossalai", None, name="gpt2"),
    ),
    mutant(
        "take the first tensor parallel part on every rank",
        "gemini_destination:GeminiDestination._tensor_parallel_part",
        "rank, size = self.gemini_optimizer.tp_rank, self.gemini_optimizer.tp_size",
        "rank, size = 0, self.gemini_optimizer.tp_size",
        where("GeminiTensorParallel", TP_SAVED, None, layout_of_chunks="sharded"),
    ),
]

FLAT_PARAMETERS = [
    mutant(
        "say nothing but the first problem of flat parameters",
        "fsdp_destination:FSDPDestination.adapted",
        "if problems or plan is None:\n        raise load_error(problems)",
        "if problems or plan is None:\n        raise load_error(problems[:1])",
        where("FSDP", "test_all_problems_at_once"),
    ),
    mutant(
        "load the groups before what flat parameters are made of is validated",
        "fsdp_destination:FSDPDestination.adapted",
        "if problems or plan is None:",
        "if plan is not None:\n"
        "        self.optimizer.param_groups[0]['lr'] = plan.groups[0].get('lr')\n"
        "    if problems or plan is None:",
        where("FSDP", "test_damaged_shard", damage="missing"),
    ),
    mutant(
        "flatten whatever shares a flat parameter",
        "fsdp_destination:FSDPDestination.adapted",
        "flat.check(plan.groups, states, saved.source, problems)",
        "pass",
        where("FSDP", "test_part_of_a_flat_parameter", missing=1),
        where("FSDP", "test_key_of_a_part_of_a_flat_parameter", key="seen"),
        where("FSDP", "test_parts_of_a_flat_parameter_that_have_taken_other_steps"),
    ),
    mutant(
        "look at the first parameter of a flat one only",
        "flat_parameters:_check_shared",
        "for param_id, state in states[1:]:",
        "for param_id, state in states[:0]:",
        where("FSDP", "test_part_of_a_flat_parameter", missing=0),
    ),
    mutant(
        "let parts of a flat parameter have taken other steps",
        "flat_parameters:_agree",
        "bool(value == other)",
        "True",
        where("FSDP", "test_parts_of_a_flat_parameter_that_have_taken_other_steps"),
    ),
    mutant(
        "let parts of a flat parameter have other keys",
        "flat_parameters:_check_shared",
        "if set(state) != set(first):",
        "if not set(state) & set(first) and state and first:",
        where("FSDP", "test_key_of_a_part_of_a_flat_parameter", key="seen"),
    ),
    mutant(
        "take the saved ids for the flat parameters in another order",
        "flat_parameters:FlatParameters.names_by_id",
        "chain(*originals))",
        "list(chain(*originals))[::-1])",
        where("FSDP", "test_full_checkpoint"),
    ),
    mutant(
        "take the shape of the flat parameter for those it was made of",
        "flat_parameters:original_parameters",
        "flat_param._shapes[info.param_indices[name]]",
        "flat_param.shape",
        where("FSDP", "test_full_checkpoint"),
    ),
    mutant(
        "expect every parameter in a flat one",
        "flat_parameters:original_parameters",
        "info = infos.get(name)",
        "info = infos[name]",
        where("FSDP", "test_module_that_fsdp_ignores"),
    ),
    mutant(
        "flatten the parts of a flat parameter one after another",
        "flat_parameters:FlatParameters.batches",
        "for each in made_of if each.name in states] for made_of in chain(*self._originals)]",
        "] for made_of in chain(*self._originals) for each in made_of if each.name in states]; sizes = [0] * 99",
        where("FSDP", "test_flattened_together"),
    ),
    mutant(
        "forget the state of the optimizer as a whole",
        "flat_parameters:FlatParameters.batches",
        "flat.append([key for key in states if key not in named])",
        "pass",
        where("FSDP", "test_state_of_the_optimizer_itself"),
    ),
    mutant(
        "flatten everything at once",
        "flat_parameters:FlatParameters.batches",
        "enough = max(max(sizes), sum(sizes) // MAX_BATCHES)",
        "enough = sum(sizes)",
        where("FSDP", "test_at_most_one_shard_of_extra_memory", None),
    ),
    mutant(
        "leave the precision of parts as it was saved",
        "fsdp_destination:_cast",
        "if dtype is None or not dtype.is_floating_point:",
        "if True:",
        where("FSDP", "test_parts_in_different_precision"),
    ),
    mutant(
        "let the settings for saving decide who reads",
        "fsdp_destination:FSDPDestination._sharded",
        'if not getattr(settings, "rank0_only", False):',
        "if True:",
        where("FSDP", "test_settings_for_saving_and_a_rank_that_fails"),
        hangs=True,
    ),
]
