"""Faults of what every class does alike: release, load, confirm, and agree with the other ranks."""

from functools import partial

import torch
from colossalai.accelerator import get_accelerator
from mutation import around, everywhere, instead, mutant, replacing, together, where
from torch.optim import Optimizer

from colossalai_fork.checkpoint_io.optimizer_restore.agreement import LOADED
from colossalai_fork.checkpoint_io.optimizer_restore.errors import Problem

LOAD = "restore:_Loading.load"


def keep_entries(before, loading):
    for param, state in before.items():
        loading.optimizer.state.setdefault(param, state)


def keep_keys(before, loading):
    for param, state in loading.optimizer.state.items():
        for key, value in before.get(param, {}).items():
            state.setdefault(key, value)


def state_of(loading):
    return {param: dict(state) for param, state in loading.optimizer.state.items()}


RELEASE = [
    replacing(
        "keep the entries that the checkpoint lacks",
        LOAD,
        around(state_of, keep_entries),
        everywhere("test_parameter_without_saved_state_has_none"),
        everywhere("test_empty_checkpoint_leaves_no_state", "torch-one-file"),
    ),
    replacing(
        "keep the keys that the checkpoint lacks",
        LOAD,
        around(state_of, keep_keys),
        everywhere("test_key_that_was_not_saved_is_gone"),
    ),
    replacing(
        "do not release the old state before the new is made",
        "restore:_Loading._release",
        instead(),
        everywhere("test_old_state_is_released_first"),
    ),
    replacing(
        "clear before validating",
        "restore:_validated",
        around(lambda destination, *_: destination.optimizer.state.clear()),
        everywhere("test_damaged_shard", damage="missing"),
        everywhere("test_state_of_another_shape", new_shape="longer"),
    ),
]


def load_rate(original):
    def validate(saved, destination, problems):
        plan = original(saved, destination, problems)
        if plan is not None:
            destination.optimizer.param_groups[0]["lr"] = plan.groups[0].get("lr")
        return plan

    return validate


def leave_groups(original):
    def undo(self):
        self.optimizer.state.clear()
        self._state_before.clear()

    return undo


def leave_state(original):
    return lambda self: self._groups_before.put_back()


REFUSING = [
    replacing(
        "load the learning rate before the shards are validated",
        "validation:validate",
        load_rate,
        everywhere("test_damaged_shard", damage="missing"),
    ),
    replacing(
        "say nothing but the first problem",
        "errors:load_error",
        lambda original: lambda problems, *rest: original(problems[:1], *rest),
        everywhere("test_all_problems_at_once"),
    ),
    replacing(
        "leave the new groups after a failure",
        "restore:_Loading.undo",
        leave_groups,
        everywhere("test_loading_fails_after_validation", failing="first"),
    ),
    replacing(
        "leave half of the new state after a failure",
        "restore:_Loading.undo",
        leave_state,
        everywhere("test_loading_fails_after_validation", failing="first"),
    ),
]


def past_subclass(original):
    def load(self):
        self.optimizer.__dict__["load_state_dict"] = partial(Optimizer.load_state_dict, self.optimizer)
        try:
            original(self)
        finally:
            del self.optimizer.__dict__["load_state_dict"]

    return load


def hooks_without_results(original):
    def silent(hook):
        return lambda optimizer, state_dict: hook(optimizer, state_dict) and None

    return lambda destination, hooks, plan: original(destination, [silent(hook) for hook in hooks], plan)


def without_filled_keys(_, loading):
    for group, saved in zip(loading.optimizer.param_groups, loading.plan.groups):
        for key in set(group) - set(saved):
            del group[key]


NATIVE = [
    replacing("fire no post hook", "restore:_Loading.finish", instead(), everywhere("test_hooks_fire_once")),
    mutant(
        "fire load hooks twice",
        "restore:_hooks_held_back",
        "optimizer.__dict__[name] = OrderedDict()",
        "pass",
        everywhere("test_hooks_fire_once"),
    ),
    replacing(
        "ignore what a pre hook returns",
        "restore:_hooked",
        hooks_without_results,
        everywhere("test_hook_that_changes_the_state_dict"),
    ),
    replacing(
        "bypass the load_state_dict of a subclass",
        LOAD,
        past_subclass,
        everywhere("test_loading_of_a_subclass", but="Gemini"),
    ),
    replacing(
        "hand a stream to a subclass that expects a dictionary",
        "own_layout:overrides_loading",
        instead(False),
        everywhere("test_loading_of_a_subclass", but="Gemini"),
    ),
    replacing(
        "drop what __setstate__ fills in",
        LOAD,
        around(after=without_filled_keys),
        everywhere("test_group_keys_that_older_torch_did_not_save", but="Gemini"),
    ),
    mutant(
        "keep no entry whose saved state is empty",
        "restore:_Loading.load",
        "if self.destination.empty_is_absent:",
        "if True:",
        everywhere("test_saved_empty_entry", but="Gemini FSDP"),
    ),
]


def cast_step(original):
    def for_native(self, param, state):
        if isinstance(state.get("step"), torch.Tensor):
            state = {**state, "step": state["step"].to(param.dtype)}
        return original(self, param, state)

    return for_native


def half_step(original):
    def for_native(self, param, state):
        if isinstance(state.get("step"), int):
            state = {**state, "step": torch.tensor(float(state["step"])).half()}
        return original(self, param, state)

    return for_native


VALUES = [
    replacing(
        "cast step to the dtype of the parameter",
        "streamed_state:StreamedState._for_native",
        cast_step,
        where("General DataParallel TensorParallel FSDP", "test_parameters_of_half_precision"),
    ),
    replacing(
        "make a tensor of half precision of an integer step",
        "streamed_state:StreamedState._for_native",
        half_step,
        everywhere("test_integer_step", but="Gemini"),
    ),
    replacing(
        "let native code take strings apart",
        "streamed_state:_holds_text",
        instead(False),
        everywhere("test_text_stays_text", but="Gemini"),
    ),
]

COST = [
    replacing(
        "read everything into memory always",
        "plan:Plan.entries",
        lambda original: lambda *arguments: iter(list(original(*arguments))),
        everywhere("test_at_most_one_shard_of_extra_memory", None),
    ),
    replacing(
        "synchronise the device",
        LOAD,
        around(lambda loading: get_accelerator().synchronize()),
        everywhere("test_no_accelerator_is_asked_for"),
    ),
    replacing(
        "pin memory on CPU",
        LOAD,
        around(lambda loading: torch.empty(1).pin_memory()),
        everywhere("test_no_pinned_memory_is_asked_for"),
    ),
    replacing(
        "take a step",
        LOAD,
        around(after=lambda _, loading: loading.optimizer.step()),
        everywhere("test_loading_never_trains", outcome="loads"),
    ),
]


def without_reasons(original):
    def agree(problems, point, group=None, digest=0):
        said = original(problems, point, group, digest)
        return [Problem("another rank failed", damaged=True)] if said else []

    return agree


def not_after_loading(original):
    def agree(problems, point, group=None, digest=0):
        return problems if point == LOADED else original(problems, point, group, digest)

    return agree


def raised_alone(original):
    def is_sharded(checkpoint):
        with open(f"{checkpoint}/.."):
            return original(checkpoint)

    return is_sharded


AGREEMENT = [
    replacing(
        "skip agreement",
        "agreement:agree",
        lambda original: lambda problems, point, group=None, digest=0: problems,
        together("test_one_rank_fails", fault="missing shard", failing="first"),
        together("test_loading_fails_after_validation", failing="last"),
    ),
    replacing(
        "agree only that something failed, not where and why",
        "agreement:agree",
        without_reasons,
        together("test_one_rank_fails", fault="a shape", failing="first"),
    ),
    replacing(
        "do not compare what the ranks have read",
        "agreement:agree",
        lambda original: lambda problems, point, group=None, digest=0: original(problems, point, group, 0),
        together("test_ranks_that_see_different_checkpoints"),
    ),
    replacing(
        "do not agree after loading",
        "agreement:agree",
        not_after_loading,
        together("test_loading_fails_after_validation", failing="first"),
        together("test_loading_fails_after_validation", failing="last"),
    ),
]

GROUPS_OF_RANKS = [
    mutant(
        f"let each rank of {name} load for itself",
        f"{module}.optimizer_destination",
        "dist.group.WORLD",
        "None",
        where(name, "test_one_rank_fails", fault="missing shard", failing="first"),
    )
    for name, module in {
        "DataParallel": "torch_ddp:TorchDDPCheckpointIO",
        "TensorParallel": "hybrid_parallel:HybridParallelCheckpointIO",
        "Gemini": "gemini:GeminiCheckpointIO",
        "FSDP": "torch_fsdp:TorchFSDPCheckpointIO",
    }.items()
]
