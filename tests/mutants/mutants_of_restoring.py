"""Faults of what every class does alike: release, load, confirm, and agree with the other ranks."""

from mutation import everywhere, mutant, together, where

NATIVE = 'self.optimizer.load_state_dict({"state": states, "param_groups": groups})'
AFTER_NATIVE = NATIVE + "\n" + " " * 8

RESTORE = [
    mutant(
        "keep the entries that the checkpoint lacks",
        "restore:_Loading.load",
        "self.optimizer.state.clear()",
        "before = dict(self.optimizer.state); "
        "self.fire_post_hooks = lambda: [self.optimizer.state.setdefault(*entry) for entry in before.items()]",
        everywhere("test_parameter_without_saved_state_has_none"),
        everywhere("test_empty_checkpoint_leaves_no_state", "torch-one-file"),
    ),
    mutant(
        "keep the keys that the checkpoint lacks",
        "restore:_Loading.load",
        "self.optimizer.state.clear()",
        "before = dict(self.optimizer.state); self.fire_post_hooks = lambda: ["
        "state.setdefault(*item) for key, state in self.optimizer.state.items() for item in before[key].items()]",
        everywhere("test_key_that_was_not_saved_is_gone"),
    ),
    mutant(
        "do not release the old state before the new is made",
        "restore:_Loading.load",
        "self.optimizer.state.clear()",
        "pass",
        everywhere("test_old_state_is_released_first"),
    ),
    mutant(
        "clear before validating",
        "restore:restore",
        "loading = _Loading(",
        "destination.optimizer.state.clear(); loading = _Loading(",
        everywhere("test_damaged_shard", damage="missing"),
        everywhere("test_state_of_another_shape", new_shape="longer"),
    ),
    mutant(
        "load the groups before the shards are validated",
        "restore:_Loading._plan",
        "if problems or plan is None:",
        "if plan is not None:\n"
        "        self.optimizer.param_groups[0]['lr'] = plan.groups[0].get('lr')\n"
        "    if problems or plan is None:",
        everywhere("test_damaged_shard", damage="missing", but="FSDP"),
    ),
    mutant(
        "say nothing but the first problem",
        "restore:_Loading._plan",
        "raise load_error(problems)",
        "raise load_error(problems[:1])",
        everywhere("test_all_problems_at_once", but="FSDP"),
    ),
    mutant(
        "leave the new groups after a failure",
        "restore:_Loading.empty",
        'self.optimizer.__dict__["param_groups"] = self._groups_before',
        "pass",
        everywhere("test_loading_fails_after_validation", failing="first"),
    ),
    mutant(
        "leave half of the new state after a failure",
        "restore:_Loading.empty",
        "self.optimizer.state.clear()",
        "pass",
        everywhere("test_loading_fails_after_validation", failing="first"),
    ),
    mutant(
        "fire load hooks twice",
        "restore:_hooks_held_back",
        "optimizer.__dict__[name] = OrderedDict()",
        "pass",
        everywhere("test_hooks_fire_once"),
    ),
    mutant(
        "fire no post hook",
        "restore:_Loading.fire_post_hooks",
        "hook(self.optimizer)",
        "pass",
        everywhere("test_hooks_fire_once"),
    ),
    mutant(
        "ignore what a pre hook returns",
        "restore:_Loading._hooked",
        "state_dict = result",
        "pass",
        everywhere("test_hook_that_changes_the_state_dict"),
    ),
    mutant(
        "bypass the load_state_dict of a subclass",
        "restore:_Loading.load",
        NATIVE,
        'Optimizer.load_state_dict(self.optimizer, {"state": states, "param_groups": groups})',
        everywhere("test_loading_of_a_subclass", but="Gemini"),
        where("Gemini", "test_loading_fails_after_validation", failing="first"),
    ),
    mutant(
        "hand a stream to a subclass that expects a dictionary",
        "restore:_Loading._native_is_overridden",
        "return not handed_on and",
        "return False and",
        everywhere("test_loading_of_a_subclass", but="Gemini"),
    ),
    mutant(
        "leave wrappers where native code has put them",
        "restore:_Stream.release_kept",
        "state[key] = state[key].value",
        "pass",
        everywhere("test_text_stays_text", but="Gemini"),
        where("GeminiOffload", "test_full_checkpoint_into_a_fresh_optimizer"),
    ),
    mutant(
        "drop what __setstate__ fills in",
        "restore:_Loading.load",
        NATIVE,
        AFTER_NATIVE + "[group.pop(key) for group, saved in zip(self.optimizer.param_groups, groups)"
        " for key in set(group) - set(saved)]",
        everywhere("test_group_keys_that_older_torch_did_not_save", but="Gemini"),
    ),
    mutant(
        "cast step to the dtype of the parameter",
        "restore:_Stream.items",
        "for key, value in state.items():",
        "if isinstance(state.get('step'), torch.Tensor):\n"
        "                state['step'] = state['step'].to(param.dtype)\n"
        "            for key, value in state.items():",
        where("General DataParallel TensorParallel FSDP", "test_parameters_of_half_precision"),
    ),
    mutant(
        "make a float tensor of an integer step",
        "restore:_Stream.items",
        "for key, value in state.items():",
        "if isinstance(state.get('step'), int):\n"
        "                state['step'] = torch.tensor(float(state['step'])).half()\n"
        "            for key, value in state.items():",
        everywhere("test_integer_step", but="Gemini"),
    ),
    mutant(
        "let native code take texts apart",
        "restore:_Stream.items",
        "elif _holds_text(value):",
        "elif False:",
        everywhere("test_text_stays_text", but="Gemini"),
    ),
    mutant(
        "alias the shard",
        "restore:_owned",
        "else value.clone()",
        "else value",
        everywhere("test_full_checkpoint", but="FSDP"),
    ),
    mutant(
        "keep no entry whose saved state is empty",
        "restore:_Loading.load",
        "if self.destination.empty_is_absent:",
        "if True:",
        everywhere("test_saved_empty_entry", but="Gemini FSDP"),
    ),
    mutant(
        "read everything into memory always",
        "restore:_Loading.prepare",
        "elif not self.low_cpu_mem_mode or self._native_is_overridden():",
        "elif True:",
        everywhere("test_at_most_one_shard_of_extra_memory", None),
    ),
    mutant(
        "look ids up in a list",
        "restore:_IdList.__contains__",
        "return item in self._set",
        "return item in list(self)",
        where("General", "test_time_grows_linearly", None),
    ),
    mutant(
        "synchronise the device",
        "restore:_Loading.load",
        NATIVE,
        AFTER_NATIVE + "from colossalai.accelerator import get_accelerator; get_accelerator().synchronize()",
        everywhere("test_no_accelerator_is_asked_for"),
    ),
    mutant(
        "pin memory on CPU",
        "restore:_Loading._read_all",
        'pinned = param is not None and param.device.type == "cuda"',
        "pinned = True",
        everywhere("test_no_pinned_memory_is_asked_for"),
    ),
    mutant(
        "take a step",
        "restore:_Loading.load",
        NATIVE,
        AFTER_NATIVE + "self.optimizer.step()",
        everywhere("test_loading_never_trains", outcome="loads"),
    ),
]

AGREEMENT = [
    mutant(
        "skip agreement",
        "agreement:agree",
        "if group is None or not dist.is_initialized():",
        "if True:",
        together("test_one_rank_fails", fault="missing shard", failing="first"),
        together("test_loading_fails_after_validation", failing="last"),
    ),
    mutant(
        "agree only that something failed, not where and why",
        "agreement:agree",
        "for problem in of_rank]",
        "for problem in of_rank][:0] + [Problem('another rank failed', damaged=True)]",
        together("test_one_rank_fails", fault="a shape", failing="first"),
    ),
    mutant(
        "do not compare what the ranks have read",
        "agreement:agree",
        "if largest == -smallest:",
        "if True:",
        together("test_ranks_that_see_different_checkpoints"),
    ),
    mutant(
        "raise where there is no checkpoint, though other ranks wait",
        "checkpoint_io_base:CheckpointIO.load_optimizer",
        "sharded, path = find_index(checkpoint)",
        "sharded, path = find_index(checkpoint)\n    Path(checkpoint).stat()",
        together("test_one_rank_fails", fault="no directory", failing="first"),
        hangs=True,
    ),
    mutant(
        "do not agree after loading",
        "restore:restore",
        "problems = agree(problems, group)\n",
        "pass\n",
        together("test_loading_fails_after_validation", failing="first"),
        together("test_loading_fails_after_validation", failing="last"),
    ),
]

GROUPS_OF_RANKS = [
    mutant(
        f"let each rank of {name} load for itself",
        f"{module}.loading_group",
        "return dist.group.WORLD",
        "return None",
        where(name, "test_one_rank_fails", fault="missing shard", failing="first"),
    )
    for name, module in {
        "DataParallel": "torch_ddp:TorchDDPCheckpointIO",
        "TensorParallel": "hybrid_parallel:HybridParallelCheckpointIO",
        "Gemini": "gemini:GeminiCheckpointIO",
        "FSDP": "torch_fsdp:TorchFSDPCheckpointIO",
    }.items()
]
