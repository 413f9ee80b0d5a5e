"""Faults of what every class does alike: release, load, confirm, run hooks, and undo."""

import torch
from mutation import everywhere, fault, mutant, together, where
from torch.optim import Optimizer

# ======================================
# what was there before
# ======================================


@fault(
    "restore:_Loading.load",
    everywhere("test_parameter_without_saved_state_has_none"),
    everywhere("test_empty_checkpoint_leaves_no_state", "torch-one-file"),
)
def keep_the_entries_that_the_checkpoint_lacks(load, self):
    before = dict(self.optimizer.state)
    load(self)
    for entry in before.items():
        self.optimizer.state.setdefault(*entry)


@fault("restore:_Loading.load", everywhere("test_key_that_was_not_saved_is_gone"))
def keep_the_keys_that_the_checkpoint_lacks(load, self):
    before = dict(self.optimizer.state)
    load(self)
    for key, state in self.optimizer.state.items():
        for item in before[key].items():
            state.setdefault(*item)


@fault("restore:_Loading._release", everywhere("test_old_state_is_released_first"))
def do_not_release_the_old_state_before_the_new_is_made(release, self):
    pass


@fault(
    "restore:_validated",
    everywhere("test_damaged_shard", damage="missing"),
    everywhere("test_state_of_another_shape", new_shape="longer"),
)
def clear_before_validating(validated, destination, *arguments):
    destination.optimizer.state.clear()
    return validated(destination, *arguments)


@fault("restore:_validated", everywhere("test_damaged_shard", damage="missing"))
def load_the_groups_before_the_shards_are_validated(validated, destination, saved, *arguments):
    destination.optimizer.param_groups[0]["lr"] = saved.groups[0]["lr"]
    return validated(destination, saved, *arguments)


# ======================================
# failing half-way
# ======================================


@fault("own_layout:GroupsBefore.put_back", everywhere("test_loading_fails_after_validation", failing="first"))
def leave_the_new_groups_after_a_failure(put_back, self):
    pass


@fault(
    "restore:_Loading.undo",
    everywhere("test_loading_fails_after_validation", failing="first"),
    everywhere("test_interrupt_while_loading", failing="last"),
    # Native code in one process has loaded nothing by then.
    everywhere("test_files_fail_while_they_are_read", but="General", failing="first"),
)
def leave_the_new_state_after_a_failure(undo, self):
    self._groups_before.put_back()


@fault("restore:_Loading.undo", everywhere("test_loading_fails_after_validation", failing="first"))
def leave_half_of_the_new_state_after_a_failure(undo, self):
    half = list(self.optimizer.state.items())[::2]
    undo(self)
    self.optimizer.state.update(half)


@fault("restore:_validated", everywhere("test_what_is_read_beforehand_cannot_fail"))
def stream_whatever_was_asked_for(validated, destination, saved, low_cpu_mem_mode, num_threads):
    return validated(destination, saved, True, num_threads)


@fault("restore:_Loading.load", everywhere("test_interrupt_while_loading", failing="last"))
def take_an_interrupt_for_the_end_of_loading(load, self):
    try:
        load(self)
    except KeyboardInterrupt:
        pass


# ======================================
# hooks
# ======================================


@fault("restore:_Loading.finish", everywhere("test_hooks_fire_once"))
def fire_no_post_hook(finish, self):
    pass


@fault("restore:_Loading.finish", everywhere("test_hooks_fire_once"))
def fire_post_hooks_twice(finish, self):
    finish(self)
    finish(self)


@fault("restore:_hooked", everywhere("test_hook_that_changes_the_state_dict"))
def ignore_what_a_pre_hook_returns(hooked, destination, hooks, plan):
    return hooked(destination, [lambda *arguments, hook=hook: hook(*arguments) and None for hook in hooks], plan)


@fault("restore:_hooked", everywhere("test_pre_hooks_run_in_order"))
def run_pre_hooks_in_reverse(hooked, destination, hooks, plan):
    return hooked(destination, hooks[::-1], plan)


@fault("restore:_Loading.load", together("test_no_post_hook_where_another_rank_fails"))
def fire_post_hooks_before_the_other_ranks_have_confirmed(load, self):
    load(self)
    self.finish()
    self.finish = lambda: None


HOOKS = [
    mutant(
        "fire load hooks twice",
        "restore:_hooks_held_back",
        "optimizer.__dict__[name] = OrderedDict()",
        "pass",
        everywhere("test_hooks_fire_once"),
    ),
]

# ======================================
# native loading, and what it is handed
# ======================================


@fault(
    "restore:_Loading.load",
    everywhere("test_loading_of_a_subclass", but="Gemini"),
    where("Gemini", "test_loading_fails_after_validation", failing="first"),
)
def bypass_the_load_state_dict_of_a_subclass(load, self):
    self.optimizer.load_state_dict = lambda state_dict: Optimizer.load_state_dict(self.optimizer, state_dict)
    try:
        load(self)
    finally:
        del self.optimizer.load_state_dict


@fault("own_layout:overrides_loading", everywhere("test_loading_of_a_subclass", but="Gemini"))
def hand_a_stream_to_a_subclass_that_expects_a_dictionary(overrides_loading, optimizer):
    return False


@fault("restore:_Loading.load", everywhere("test_group_keys_that_older_torch_did_not_save", but="Gemini"))
def drop_what_setstate_fills_in(load, self):
    load(self)
    for group, saved in zip(self.optimizer.param_groups, self.plan.groups):
        for key in set(group) - set(saved):
            del group[key]


@fault(
    "streamed_state:StreamedState._for_native",
    where("General DataParallel TensorParallel FSDP", "test_parameters_of_half_precision"),
)
def cast_step_to_the_dtype_of_the_parameter(for_native, self, param, state):
    if isinstance(state.get("step"), torch.Tensor):
        state = {**state, "step": state["step"].to(param.dtype)}
    return for_native(self, param, state)


@fault("streamed_state:StreamedState._for_native", everywhere("test_integer_step", but="Gemini"))
def make_a_tensor_of_an_integer_step(for_native, self, param, state):
    if isinstance(state.get("step"), int):
        state = {**state, "step": torch.tensor(float(state["step"])).half()}
    return for_native(self, param, state)


@fault("streamed_state:StreamedState._for_native", everywhere("test_moments_in_another_precision", but="FSDP"))
def load_no_moment_in_another_precision(for_native, self, param, state):
    others = (torch.float64, torch.bfloat16)
    kept = {key: value for key, value in state.items() if getattr(value, "dtype", None) not in others}
    return for_native(self, param, kept)


@fault("streamed_state:_holds_text", everywhere("test_text_stays_text", but="Gemini"))
def let_native_code_take_texts_apart(holds_text, value, start=""):
    return False


@fault("reading:_Reading.tensors", everywhere("test_full_checkpoint", but="FSDP"))
def read_tensors_into_larger_storages(tensors, self):
    return [torch.cat([each.flatten(), each.new_zeros(1)])[:-1].view(each.shape) for each in tensors(self)]


@fault("restore:_validated", everywhere("test_at_most_one_shard_of_extra_memory", None, but="FSDP"))
def read_everything_into_memory_always(validated, destination, saved, low_cpu_mem_mode, num_threads):
    return validated(destination, saved, False, num_threads)


@fault("streamed_state:StreamedState.items", where("General", "test_work_grows_linearly", None))
def look_ids_up_in_all_groups(items, self):
    groups = list(self._groups)
    for entry in items(self):
        self._groups[:] = groups
        yield entry


@fault("restore:_Loading.load", everywhere("test_no_accelerator_is_asked_for"))
def synchronise_the_device(load, self):
    from colossalai.accelerator import get_accelerator

    load(self)
    get_accelerator().synchronize()


@fault("restore:_prepared", everywhere("test_no_pinned_memory_is_asked_for"))
def pin_memory_on_CPU(prepared, destination, saved, low_cpu_mem_mode, num_threads):
    if not low_cpu_mem_mode:
        torch.empty(1).pin_memory()
    return prepared(destination, saved, low_cpu_mem_mode, num_threads)


@fault("restore:_Loading.load", everywhere("test_loading_never_trains", outcome="loads"))
def take_a_step(load, self):
    load(self)
    self.optimizer.step()


@fault("restore:_Loading.load", everywhere("test_loading_never_trains", outcome="loads", but="Gemini"))
def change_a_parameter(load, self):
    load(self)
    with torch.no_grad():
        self.optimizer.param_groups[0]["params"][0].add_(1)


@fault("restore:_Loading.load", everywhere("test_full_checkpoint"))
def keep_the_learning_rates(load, self):
    rates = [group["lr"] for group in self.optimizer.param_groups]
    load(self)
    for group, rate in zip(self.optimizer.param_groups, rates):
        group["lr"] = rate


@fault("restore:_Loading.load", everywhere("test_option_that_was_not_saved_is_gone"))
def keep_options_that_were_not_saved(load, self):
    before = [dict(group) for group in self.optimizer.param_groups]
    load(self)
    for group, options in zip(self.optimizer.param_groups, before):
        for item in options.items():
            group.setdefault(*item)


@fault("restore:_Loading.load", everywhere("test_saved_options_win"))
def let_options_win_that_the_optimizer_was_built_with(load, self):
    before = [dict(group) for group in self.optimizer.param_groups]
    load(self)
    for group, options in zip(self.optimizer.param_groups, before):
        group.update({key: options[key] for key in ("betas", "weight_decay") if key in options})


@fault("gemini_destination:GeminiDestination.local_groups", where("Gemini", "test_saved_options_win"))
def let_bias_correction_win_that_Gemini_was_built_with(local_groups, self, groups, *arguments):
    return local_groups(self, [{**group, "bias_correction": True} for group in groups], *arguments)


# ======================================
# state dicts of the optimizer's own making
# ======================================


@fault("own_layout:has_own_layout", where("General DataParallel", "test_layout_of_the_optimizers_own"))
def expect_native_layout_of_every_optimizer(has_own_layout, *arguments):
    return False


@fault(
    "own_layout:OwnLayout.undo", where("General DataParallel", "test_layout_of_the_optimizers_own_that_does_not_fit")
)
def leave_what_a_load_of_the_optimizers_own_has_done(undo, self):
    pass


@fault("plan:Plan.__init__", where("General DataParallel", "test_what_a_file_holds_beside_state_and_groups"))
def drop_what_a_file_holds_beside_state_and_groups(init, self, groups, targets, shards, extra):
    init(self, groups, targets, shards, {})


# ======================================
# loaders of somebody's own
# ======================================


@fault("restore:_Loading._release", where("OwnLoaders", "test_shard_after_shard"))
def release_the_state_of_earlier_shards(release, self):
    self._state_before.clear()
    release(self)


@fault("restore:_Loading.load", where("OwnLoaders", "test_shard_after_shard"))
def keep_the_state_as_the_groups_are_loaded(load, self):
    before = dict(self.optimizer.state)
    load(self)
    if not self.plan.targets or not self.plan.shards:
        self.optimizer.state.update(before)


@fault("utils:load_states_into_optimizer", where("OwnLoaders", "test_unknown_parameters_may_be_skipped"))
def refuse_unknown_parameters_always(load, optimizer, state_dict, id_map, strict=False):
    load(optimizer, state_dict, id_map)


@fault("utils:load_states_into_optimizer", where("OwnLoaders", "test_shard_of_an_unknown_parameter"))
def skip_unknown_parameters_always(load, optimizer, state_dict, id_map, strict=False):
    load(optimizer, state_dict, id_map, True)


@fault("utils:load_states_into_optimizer", where("OwnLoaders", "test_shard_that_does_not_fit"))
def load_one_parameter_after_another(load, optimizer, state_dict, id_map, strict=False):
    for param_id, state in state_dict.items():
        load(optimizer, {param_id: state}, id_map, strict)


ENTRIES = [
    mutant(
        "keep no entry whose saved state is empty",
        "restore:_Loading.load",
        "if self.destination.empty_is_absent:",
        "if True:",
        everywhere("test_saved_empty_entry", but="Gemini FSDP"),
    ),
]
