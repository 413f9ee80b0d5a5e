"""Faults of judging whether a checkpoint fits the optimizer."""

from math import prod

from mutation import everywhere, fault, mutant, where

from colossalai_fork.checkpoint_io.optimizer_restore.state_kinds import ELEMENTWISE_STATE


@fault("errors:load_error", everywhere("test_all_problems_at_once"))
def say_nothing_but_the_first_problem(load_error, problems, *arguments):
    return load_error(problems[:1], *arguments)


@fault("state_check:_ParameterCheck.check", everywhere("test_id_in_no_group", "torch-one-file"))
def ignore_ids_of_no_group(check, self, state):
    if self.param_id in self.common.known:
        check(self, state)


@fault(
    "validation:_check_index",
    everywhere("test_id_in_no_group_in_a_shard_of_its_own", but="General DataParallel FSDP"),
)
def ignore_what_the_index_lists_and_no_group_has(check_index, saved, known, problems):
    pass


@fault(
    "state_check:_ParameterCheck._check_tensor",
    everywhere("test_state_of_another_shape", new_shape="transposed"),
    everywhere("test_state_of_a_vector_one_element_too_long"),
)
def accept_any_shape(check_tensor, self, key, value, param, placement):
    pass


@fault(
    "state_check:_ParameterCheck._check_tensor",
    everywhere("test_state_of_another_shape", new_shape="transposed"),
    everywhere("test_state_of_another_shape", new_shape="flat", but="ExpertParallel"),
)
def accept_as_many_elements_in_another_shape(check_tensor, self, key, value, param, placement):
    if value.numel() != prod(placement.global_shape):
        check_tensor(self, key, value, param, placement)


@fault(
    "state_check:_ParameterCheck._check_tensor",
    everywhere("test_state_of_a_name_that_nobody_knows_has_another_shape", but="Gemini"),
)
def check_the_shapes_of_well_known_moments_only(check_tensor, self, key, value, param, placement):
    if key in ELEMENTWISE_STATE:
        check_tensor(self, key, value, param, placement)


@fault("state_check:_ParameterCheck.check", everywhere("test_state_that_is_no_mapping", but="FSDP"))
def take_state_that_is_no_mapping_for_no_state(check, self, state):
    if isinstance(state, dict):
        check(self, state)


@fault("state_kinds:required_state", everywhere("test_state_lacks_what_every_step_reads", key="exp_avg"))
def accept_state_that_the_next_step_cannot_use(required_state, optimizer_class):
    return ()


@fault(
    "state_check:_ParameterCheck._is_wrong_number",
    everywhere("test_state_of_another_kind", key="step", value="three"),
)
def accept_any_step(is_wrong_number, self, key, value):
    return False


@fault(
    "state_check:_ParameterCheck._lacks_tensor",
    everywhere("test_state_of_another_kind", key="exp_avg", value=0.5),
)
def accept_a_number_for_a_moment(lacks_tensor, self, key, value):
    return False


@fault("state_check:_refusal_of", everywhere("test_tensor_without_data"))
def accept_tensors_without_data(refusal_of, value):
    return None


@fault(
    "group_options:_filled_by_setstate",
    everywhere("test_group_keys_that_older_torch_did_not_save", but="Gemini"),
)
def refuse_groups_that_lack_what_setstate_fills_in(filled, base, defaults, groups):
    return groups


@fault(
    "group_options:check_options",
    everywhere("test_file_of_another_optimizer_class"),
    everywhere("test_group_key_that_nothing_fills", key="betas"),
)
def accept_groups_of_another_optimizer_class(check_options, destination, groups, source, problems):
    pass


@fault("errors:Problem.__init__", everywhere("test_state_of_another_shape", new_shape="longer"))
def do_not_say_what_was_expected(init, self, *arguments, **options):
    init(self, *arguments, **options)
    self.expected = None


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


@fault(
    "state_check:_ParameterCheck._check_leaves",
    where("Zero TensorParallel ExpertParallel Gemini FSDP", "test_collection_of_tensors_that_cannot_be_cut"),
)
def let_collections_of_tensors_stay_whole_where_tensors_are_cut(check_leaves, self, key, state, placement=None):
    pass


@fault(
    "placement:Placement.keeps_everything",
    where("General DataParallel Pipeline", "test_collection_of_tensors"),
)
def refuse_collections_of_tensors_that_stay_whole(keeps_everything, self):
    return False
