"""Faults of reading files, and of judging whether what is in them fits the optimizer."""

from mutation import everywhere, mutant

FILES = [
    mutant(
        "take every shard in the directory, whatever the index says",
        "saved_state:open_sharded",
        "directory = os.path.dirname(os.path.abspath(path))",
        "directory = os.path.dirname(os.path.abspath(path))\n"
        "    for found in Path(directory).glob('pytorch_optim-*.bin'):\n"
        "        weight_map.update({str(key): found.name for key in read_torch_file(str(found))[0]})",
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
