"""Faults of reading files, and of judging whether what is in them fits the optimizer."""

import os
from collections import defaultdict
from pathlib import Path

import torch
from mutation import around, everywhere, instead, mutant, replacing

from colossalai_fork.checkpoint_io.optimizer_restore.files.opened import Opened
from colossalai_fork.checkpoint_io.optimizer_restore.placement import number_of_elements
from colossalai_fork.checkpoint_io.optimizer_restore.state_kinds import ELEMENTWISE_STATE


def without_first_shard(original):
    return lambda plan, shards=None: original(plan, list(plan.shards if shards is None else shards)[1:])


SHARDS = [
    replacing("skip a shard", "plan:Plan.saved_entries", without_first_shard, everywhere("test_full_checkpoint")),
    replacing(
        "open shards again for loading",
        "saved_state:SavedShard.states",
        lambda original: lambda shard: original(type(shard).of_file(shard.path) if shard.sources else shard),
        everywhere("test_opens_each_shard_once"),
    ),
    replacing(
        "open torch files with full pickle",
        "torch_file:open_torch_file",
        lambda original: lambda path: Opened(torch.load(path, weights_only=False), [], True),
        everywhere("test_code_in_a_file", part="shard"),
        everywhere("test_code_in_a_file", part="groups"),
    ),
    replacing(
        "leave the checkpoint's directory",
        "index_file:path_inside",
        lambda original: lambda directory, name, *rest: os.path.join(directory, name),
        everywhere("test_shard_outside_the_directory", how="parent"),
        everywhere("test_shard_outside_the_directory", how="absolute"),
    ),
]


class Everything:
    """Contains whatever it is asked for."""

    def __contains__(self, item):
        return True


def lists_nothing(check, shards):
    check.listed = defaultdict(list)


def knows_everything(original):
    return lambda self, saved, known, *rest: original(self, saved, Everything(), *rest)


INDEX = [
    replacing(
        "ignore what the index lists and the shard lacks",
        "state_check:StateCheck.check",
        around(lists_nothing),
        everywhere("test_index_lists_what_the_shard_lacks"),
    ),
    replacing(
        "ignore what the shard holds and the index does not list",
        "state_check:_ParameterCheck._check_place",
        instead(),
        everywhere("test_shard_holds_what_the_index_does_not_list"),
    ),
    replacing(
        "ignore ids of no group",
        "state_check:StateCheck.__init__",
        knows_everything,
        everywhere("test_id_in_no_group", "torch-one-file"),
    ),
]


def as_many_elements(original):
    def check_tensor(self, key, value, param, placement):
        if value.numel() != number_of_elements(placement.global_shape):
            original(self, key, value, param, placement)

    return check_tensor


def of_known_names(original):
    def check_tensor(self, key, *rest):
        if key in ELEMENTWISE_STATE:
            original(self, key, *rest)

    return check_tensor


STATES = [
    replacing(
        "accept any shape",
        "state_check:_ParameterCheck._check_tensor",
        instead(),
        everywhere("test_state_of_another_shape", new_shape="transposed"),
        everywhere("test_state_of_a_vector_one_element_too_long"),
    ),
    replacing(
        "accept as many elements in another shape",
        "state_check:_ParameterCheck._check_tensor",
        as_many_elements,
        everywhere("test_state_of_another_shape", new_shape="transposed"),
        everywhere("test_state_of_another_shape", new_shape="flat", but="ExpertParallel"),
    ),
    replacing(
        "check the shapes of well-known moments only",
        "state_check:_ParameterCheck._check_tensor",
        of_known_names,
        everywhere("test_state_of_a_name_that_nobody_knows_has_another_shape", but="Gemini"),
    ),
]

OPTIONS = [
    replacing(
        "refuse groups that lack what __setstate__ fills in",
        "group_options:_filled_by_setstate",
        lambda original: lambda base, defaults, groups: [dict(group) for group in groups],
        everywhere("test_group_keys_that_older_torch_did_not_save", but="Gemini"),
    ),
    replacing(
        "accept groups of another optimizer class",
        "group_options:check_options",
        instead(),
        everywhere("test_file_of_another_optimizer_class"),
        everywhere("test_group_key_that_nothing_fills", key="betas"),
    ),
]


def every_file(original):
    def read_index(path, problems):
        weight_map, metadata = original(path, problems)
        for found in Path(path).parent.glob("pytorch_optim-*.bin"):
            weight_map.update({str(param_id): found.name for param_id in torch.load(found)})
        return weight_map, metadata

    return read_index


FILES = [
    replacing(
        "take every shard in the directory, whatever the index says",
        "index_file:read_index",
        every_file,
        everywhere("test_index_decides_over_files_of_an_earlier_save"),
    ),
    mutant(
        "take saved ids that are no integers",
        "saved_state:checked_groups",
        "if isinstance(item, bool) or not isinstance(item, int)]",
        "if False]",
        everywhere("test_id_that_is_no_number", but="TensorParallel ExpertParallel"),
    ),
]

FITTING = [
    mutant(
        "truncate groups to what both sides have",
        "destination:check_group_sizes",
        "fits = True\n",
        "return True\n",
        everywhere("test_other_groups", change="moved", but="TensorParallel ExpertParallel"),
        everywhere("test_other_groups", change="shorter"),
    ),
    mutant(
        "ignore the number of groups",
        "destination:check_group_sizes",
        "if len(groups) != len(sizes):",
        "if False:",
        everywhere("test_other_groups", change="one_more"),
    ),
    mutant(
        "ignore the names of parameters",
        "validation:_check_names",
        "if found != expected:",
        "if False:",
        everywhere("test_parameter_names_in_another_order", but="FSDP"),
    ),
    mutant(
        "refuse renamed parameters",
        "validation:_check_names",
        "if len(saved) != len(present) or sorted(map(str, saved)) != sorted(map(str, present)):",
        "if len(saved) != len(present):",
        everywhere("test_renamed_parameters", but="FSDP"),
    ),
    mutant(
        "let one id stand for two parameters",
        "validation:_targets",
        "elif known[0] is not param:",
        "elif False:",
        everywhere("test_id_twice_in_the_groups", but="TensorParallel ExpertParallel FSDP"),
    ),
]
