"""Faults of opening files."""

import os
import pickle
from collections import defaultdict

import torch
from mutation import everywhere, fault, mutant

from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointMismatchError


@fault("plan:Plan.__init__", everywhere("test_full_checkpoint"))
def skip_a_shard(init, self, groups, targets, shards, extra):
    init(self, groups, targets, shards[1:], extra)


@fault("saved_state:SavedShard.states", everywhere("test_opens_each_shard_once"))
def open_shards_again_for_loading(states, self):
    self._kept = None
    return states(self)


@fault(
    "torch_file:open_torch_file",
    everywhere("test_code_in_a_file", part="shard"),
    everywhere("test_code_in_a_file", part="groups"),
)
def open_torch_files_with_full_pickle(open_file, path):
    torch.load(path, weights_only=False)
    return open_file(path)


@fault(
    "safetensors_file:open_safetensors_file",
    everywhere("test_code_in_a_file", "safetensors-sharded", part="shard"),
    everywhere("test_code_in_the_groups_of_one_file", "safetensors-one-file"),
)
def unpickle_values_in_safetensors_files_freely(open_file, path):
    from safetensors.torch import load_file

    for value in load_file(path).values():
        try:
            pickle.loads(bytes(value.tolist()))
        except Exception:
            continue
    return open_file(path)


@fault("sources:FileSource.__init__", everywhere("test_pipe_in_the_place_of_a_file", part="groups"), hangs=True)
def open_pipes(init, self, path):
    if os.path.exists(path):
        os.close(os.open(path, os.O_RDONLY))
    init(self, path)


@fault(
    "index_file:path_inside",
    everywhere("test_shard_outside_the_directory", how="parent"),
    everywhere("test_shard_outside_the_directory", how="absolute"),
)
def leave_the_checkpoint_directory(path_inside, directory, name, *arguments):
    return os.path.join(directory, name)


@fault(
    "index_file:path_inside",
    everywhere("test_group_file_outside_the_directory", how="parent"),
    everywhere("test_group_file_outside_the_directory", how="absolute"),
)
def leave_the_checkpoint_directory_for_the_groups(path_inside, directory, name, index_path, problems, param_id=None):
    if param_id is None:
        return os.path.join(directory, name)
    return path_inside(directory, name, index_path, problems, param_id)


@fault("index_file:_index_names", everywhere("test_two_index_files"))
def take_the_first_of_two_index_files(index_names, directory):
    return index_names(directory)[:1]


@fault("errors:load_error", everywhere("test_damaged_and_of_another_optimizer"))
def take_damage_for_a_checkpoint_that_does_not_fit(load_error, problems, outcome=None):
    return CheckpointMismatchError(problems)


@fault("state_check:StateCheck.check", everywhere("test_index_lists_what_the_shard_lacks"))
def ignore_what_the_index_lists_and_the_shard_lacks(check, self, shards):
    self.listed = defaultdict(list)
    check(self, shards)


@fault(
    "state_check:_ParameterCheck._check_place",
    everywhere("test_shard_holds_what_the_index_does_not_list"),
    everywhere("test_id_in_two_shards"),
)
def ignore_what_the_shard_holds_and_the_index_does_not_list(check_place, self):
    pass


@fault("index_file:read_index", everywhere("test_index_with_another_content", content="weight map is a list"))
def take_an_index_without_a_weight_map_for_one_that_is_empty(read_index, path, problems):
    found = []
    result = read_index(path, found)
    problems.extend(each for each in found if "weight_map" not in each.text)
    return result


@fault("errors:Problem.__init__", everywhere("test_damaged_shard", damage="half"))
def do_not_name_files(init, self, text, damaged=False, file=None, *arguments, **options):
    init(self, text, damaged, None, *arguments, **options)


@fault("saved_state:_unreadable", everywhere("test_damaged_group_file", damage="half"))
def take_a_damaged_group_file_for_one_that_does_not_fit(unreadable, error, path):
    problem = unreadable(error, path)
    problem.text, problem.file = "the optimizer has other groups", None
    return problem


FILES = [
    mutant(
        "take saved ids that are no integers",
        "saved_state:checked_groups",
        "if isinstance(item, bool) or not isinstance(item, int)]",
        "if False]",
        everywhere("test_id_that_is_no_number", but="TensorParallel ExpertParallel"),
    ),
    mutant(
        "take every shard in the directory, whatever the index says",
        "saved_state:open_sharded",
        "directory = os.path.dirname(os.path.abspath(path))",
        "directory = os.path.dirname(os.path.abspath(path))\n"
        "    for found in Path(directory).glob('pytorch_optim-*.bin'):\n"
        "        weight_map.update({str(key): found.name for key in open_torch_file(str(found)).content})",
        everywhere("test_index_decides_over_files_of_an_earlier_save"),
    ),
]
