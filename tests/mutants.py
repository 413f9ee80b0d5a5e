"""Faults to put into the loaders, and the contract cases that must notice each of them.

A mutant replaces lines of one function by others, in memory, inside the worker processes. It swaps the function's code
and not the function, so it also reaches ColossalAI's own classes, which hold the very same functions. A mutant whose
lines are no longer there fails loudly: whoever rewrites the function decides what the same fault looks like now.
"""

import contextlib
import dataclasses
import importlib
import inspect
import textwrap
from typing import Any, Dict, Tuple


@dataclasses.dataclass(frozen=True)
class Catch:
    """A case that must fail.

    Attributes:
        configuration (str): a class of test_mutants.py.
        method (str): the case.
        arguments (Dict[str, Any]): its arguments.
    """

    configuration: str
    method: str
    arguments: Dict[str, Any]

    def __str__(self):
        return f"{self.configuration}.{self.method}({', '.join(map(str, self.arguments.values()))})"


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        name (str): what is wrong.
        module (str): a module of colossalai_fork.checkpoint_io.
        function (str): the function's qualified name there.
        old (str): a piece of its source that occurs once.
        new (str): what takes its place.
        catches (Tuple[Catch, ...]): cases, each of which must fail.
    """

    name: str
    module: str
    function: str
    old: str
    new: str
    catches: Tuple[Catch, ...]

    @contextlib.contextmanager
    def applied(self):
        """Apply the mutant for a while.

        Yields:
            None: the fault is in.

        Raises:
            LookupError: if the function does not have the lines.
        """
        function, mutated = self._function(), self._mutated()
        original = function.__code__
        function.__code__ = mutated
        try:
            yield
        finally:
            function.__code__ = original

    def _function(self):
        found = importlib.import_module(f"colossalai_fork.checkpoint_io.{self.module}")
        for name in self.function.split("."):
            found = inspect.getattr_static(found, name)
            found = getattr(found, "__func__", found)
        return inspect.unwrap(found)

    def _mutated(self):
        function = self._function()
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise LookupError(f"{self.module}.{self.function} has {source.count(self.old)} times: {self.old}")
        # Decorators belong to the object around the function, which stays.
        body = source[source.index("def ") :]
        names = {}
        exec(compile(body.replace(self.old, self.new), f"<mutant: {self.name}>", "exec"), function.__globals__, names)
        mutated = names[function.__name__].__code__
        if mutated.co_freevars != function.__code__.co_freevars:
            raise LookupError(f"{self.module}.{self.function} closes over {function.__code__.co_freevars}")
        return mutated


def general(method, layout="torch-sharded", **arguments):
    """A case on one process."""
    return Catch("General", method, _with_layout(layout, arguments))


def data_parallel(method, layout="torch-sharded", **arguments):
    """A case on two processes that hold the whole state."""
    return Catch("DataParallel", method, _with_layout(layout, arguments))


def zero(method, layout="torch-sharded", **arguments):
    """A case on two processes that hold slices."""
    return Catch("Zero", method, _with_layout(layout, arguments))


def _with_layout(layout, arguments):
    return arguments if layout is None else {"layout": layout, **arguments}


def mutant(name, place, old, new, *catches):
    """A mutant of ``module:function``."""
    module, function = place.split(":")
    return Mutant(name, module, function, old, new, catches)


NATIVE = 'self.optimizer.load_state_dict({"state": states, "param_groups": groups})'
AFTER_NATIVE = NATIVE + "\n" + " " * 8

RESTORE = [
    mutant(
        "keep the entries that the checkpoint lacks",
        "restore:_Loading.load",
        "self.optimizer.state.clear()",
        "before = dict(self.optimizer.state); "
        "self.fire_post_hooks = lambda: [self.optimizer.state.setdefault(*entry) for entry in before.items()]",
        general("test_parameter_without_saved_state_has_none"),
        general("test_empty_checkpoint_leaves_no_state", "torch-one-file"),
        data_parallel("test_parameter_without_saved_state_has_none"),
        zero("test_parameter_without_saved_state_has_none"),
    ),
    mutant(
        "keep the keys that the checkpoint lacks",
        "restore:_Loading.load",
        "self.optimizer.state.clear()",
        "before = dict(self.optimizer.state); self.fire_post_hooks = lambda: ["
        "state.setdefault(*item) for key, state in self.optimizer.state.items() for item in before[key].items()]",
        general("test_key_that_was_not_saved_is_gone"),
        zero("test_key_that_was_not_saved_is_gone"),
    ),
    mutant(
        "do not release the old state before the new is made",
        "restore:_Loading.load",
        "self.optimizer.state.clear()",
        "pass",
        general("test_old_state_is_released_first"),
        zero("test_old_state_is_released_first"),
    ),
    mutant(
        "clear before validating",
        "restore:restore",
        "loading = _Loading(",
        "destination.optimizer.state.clear(); loading = _Loading(",
        general("test_damaged_shard", damage="missing"),
        general("test_state_of_another_shape", new_shape="longer"),
        zero("test_damaged_shard", damage="missing"),
    ),
    mutant(
        "load the groups before the shards are validated",
        "restore:_Loading._plan",
        "if problems or plan is None:",
        "if plan is not None:\n"
        "        self.optimizer.param_groups[0]['lr'] = plan.groups[0].get('lr')\n"
        "    if problems or plan is None:",
        general("test_damaged_shard", damage="missing"),
    ),
    mutant(
        "say nothing but the first problem",
        "restore:_Loading._plan",
        "raise load_error(problems)",
        "raise load_error(problems[:1])",
        general("test_all_problems_at_once"),
    ),
    mutant(
        "leave the new groups after a failure",
        "restore:_Loading.empty",
        'self.optimizer.__dict__["param_groups"] = self._groups_before',
        "pass",
        general("test_loading_fails_after_validation", failing="first"),
    ),
    mutant(
        "leave half of the new state after a failure",
        "restore:_Loading.empty",
        "self.optimizer.state.clear()",
        "pass",
        general("test_loading_fails_after_validation", failing="first"),
    ),
    mutant(
        "fire load hooks twice",
        "restore:_hooks_held_back",
        "optimizer.__dict__[name] = OrderedDict()",
        "pass",
        general("test_hooks_fire_once"),
        zero("test_hooks_fire_once"),
    ),
    mutant(
        "fire no post hook",
        "restore:_Loading.fire_post_hooks",
        "hook(self.optimizer)",
        "pass",
        general("test_hooks_fire_once"),
    ),
    mutant(
        "ignore what a pre hook returns",
        "restore:_Loading._hooked",
        "state_dict = result",
        "pass",
        general("test_hook_that_changes_the_state_dict"),
    ),
    mutant(
        "bypass the load_state_dict of a subclass",
        "restore:_Loading.load",
        NATIVE,
        'Optimizer.load_state_dict(self.optimizer, {"state": states, "param_groups": groups})',
        general("test_loading_of_a_subclass"),
    ),
    mutant(
        "drop what __setstate__ fills in",
        "restore:_Loading.load",
        NATIVE,
        AFTER_NATIVE + "[group.pop(key) for group, saved in zip(self.optimizer.param_groups, groups)"
        " for key in set(group) - set(saved)]",
        general("test_group_keys_that_older_torch_did_not_save"),
        zero("test_group_keys_that_older_torch_did_not_save"),
    ),
    mutant(
        "cast step to the dtype of the parameter",
        "restore:_Stream.items",
        "for key, value in state.items():",
        "if isinstance(state.get('step'), torch.Tensor):\n"
        "                state['step'] = state['step'].to(param.dtype)\n"
        "            for key, value in state.items():",
        general("test_parameters_of_half_precision"),
    ),
    mutant(
        "make a float tensor of an integer step",
        "restore:_Stream.items",
        "for key, value in state.items():",
        "if isinstance(state.get('step'), int):\n"
        "                state['step'] = torch.tensor(float(state['step'])).half()\n"
        "            for key, value in state.items():",
        general("test_integer_step"),
    ),
    mutant(
        "let native code take texts apart",
        "restore:_Stream.items",
        "elif _holds_text(value):",
        "elif False:",
        general("test_text_stays_text"),
    ),
    mutant(
        "alias the shard",
        "restore:_owned",
        "else value.clone()",
        "else value",
        general("test_full_checkpoint"),
        zero("test_full_checkpoint"),
    ),
    mutant(
        "keep no entry whose saved state is empty",
        "restore:_Loading.load",
        "if self.destination.empty_is_absent:",
        "if True:",
        general("test_saved_empty_entry"),
    ),
    mutant(
        "read everything into memory always",
        "restore:_Loading.prepare",
        "elif not self.low_cpu_mem_mode or self._native_is_overridden():",
        "elif True:",
        data_parallel("test_at_most_one_shard_of_extra_memory", None),
    ),
    mutant(
        "look ids up in a list",
        "restore:_IdList.__contains__",
        "return item in self._set",
        "return item in list(self)",
        general("test_time_grows_linearly", None),
    ),
    mutant(
        "synchronise the device",
        "restore:_Loading.load",
        NATIVE,
        AFTER_NATIVE + "from colossalai.accelerator import get_accelerator; get_accelerator().synchronize()",
        general("test_no_accelerator_is_asked_for"),
    ),
    mutant(
        "pin memory on CPU",
        "restore:_Loading._read_all",
        'pinned = param is not None and param.device.type == "cuda"',
        "pinned = True",
        general("test_no_pinned_memory_is_asked_for"),
    ),
    mutant(
        "take a step",
        "restore:_Loading.load",
        NATIVE,
        AFTER_NATIVE + "self.optimizer.step()",
        general("test_loading_never_trains", outcome="loads"),
    ),
]

AGREEMENT = [
    mutant(
        "skip agreement",
        "agreement:agree",
        "if group is None or not dist.is_initialized():",
        "if True:",
        data_parallel("test_one_rank_fails", fault="missing shard", failing="first"),
        data_parallel("test_loading_fails_after_validation", failing="last"),
        zero("test_one_rank_fails", fault="missing shard", failing="last"),
    ),
    mutant(
        "agree only that something failed, not where and why",
        "agreement:agree",
        "for problem in of_rank]",
        "for problem in of_rank][:0] + [Problem('another rank failed', damaged=True)]",
        data_parallel("test_one_rank_fails", fault="a shape", failing="first"),
    ),
    mutant(
        "do not compare what the ranks have read",
        "agreement:agree",
        "if largest == -smallest:",
        "if True:",
        data_parallel("test_ranks_that_see_different_checkpoints"),
        zero("test_ranks_that_see_different_checkpoints"),
    ),
    mutant(
        "do not agree after loading",
        "restore:restore",
        "problems = agree(problems, group)\n",
        "pass\n",
        data_parallel("test_loading_fails_after_validation", failing="first"),
        zero("test_loading_fails_after_validation", failing="last"),
    ),
]

SLICES = [
    mutant(
        "take another rank's slice",
        "placement:FlatSlice.cut",
        "start = min(self.rank * self.slice_length",
        "start = min((self.world_size - 1 - self.rank) * self.slice_length",
        zero("test_full_checkpoint"),
    ),
    mutant(
        "take the first rank's slice",
        "placement:FlatSlice.cut",
        "start = min(self.rank * self.slice_length",
        "start = min(0",
        zero("test_full_checkpoint"),
    ),
    mutant(
        "pad with ones", "placement:FlatSlice.cut", "held.new_zeros(", "held.new_ones(", zero("test_full_checkpoint")
    ),
    mutant(
        "pad in front",
        "placement:FlatSlice.cut",
        "padded[: stop - start]",
        "padded[self.slice_length - (stop - start) :]",
        zero("test_full_checkpoint"),
    ),
    mutant(
        "cut twice",
        "validation:own_part",
        "return part.cut(value) if",
        "return part.cut(part.cut(value)) if",
        zero("test_full_checkpoint"),
    ),
    mutant(
        "do not cut",
        "validation:Plan.states",
        "if placement.divides:",
        "if False:",
        zero("test_full_checkpoint"),
    ),
    mutant(
        "cut numbers too",
        "validation:is_divided",
        "return value.dim() > 0 or",
        "return True or",
        zero("test_scalar_state"),
    ),
    mutant(
        "read the whole tensor for a slice",
        "placement:FlatSlice.cut",
        "start = min(self.rank",
        "part = part.clone(); start = min(self.rank",
        zero("test_reads_its_own_part_only", None),
    ),
]

FILES = [
    mutant(
        "skip a shard",
        "validation:Plan.states",
        "for shard in self.shards:",
        "for shard in self.shards[1:]:",
        general("test_full_checkpoint"),
        zero("test_full_checkpoint"),
    ),
    mutant(
        "take every shard in the directory, whatever the index says",
        "saved_state:open_sharded",
        "directory = os.path.dirname(os.path.abspath(path))",
        "directory = os.path.dirname(os.path.abspath(path))\n"
        "    for found in Path(directory).glob('pytorch_optim-*.bin'):\n"
        "        weight_map.update({str(key): found.name for key in read_torch_file(str(found))[0]})",
        general("test_index_decides_over_files_of_an_earlier_save"),
        zero("test_index_decides_over_files_of_an_earlier_save"),
    ),
    mutant(
        "open shards again for loading",
        "saved_state:SavedShard.states",
        "if keep:",
        "if False:",
        general("test_opens_each_shard_once"),
    ),
    mutant(
        "open torch files with full pickle",
        "saved_file:read_torch_file",
        "return _load_weights_only(file, path, mapped=True), True",
        "return torch.load(path, weights_only=False), True",
        general("test_code_in_a_file", part="shard"),
        general("test_code_in_a_file", part="groups"),
        zero("test_code_in_a_file", part="shard"),
    ),
    mutant(
        "unpickle values in safetensors files freely",
        "saved_file:read_safetensors_file",
        "entries[key] = loads(bytes(entries[key].tolist()))",
        "entries[key] = pickle.loads(bytes(entries[key].tolist()))",
        general("test_code_in_a_file", "safetensors-sharded", part="shard"),
        general("test_code_in_the_groups_of_one_file", "safetensors-one-file"),
    ),
    mutant(
        "open pipes",
        "saved_file:require_regular_file",
        "if not stat.S_ISREG(status.st_mode):",
        "if not stat.S_ISREG(status.st_mode):\n        return 1\n    if False:",
        general("test_pipe_in_the_place_of_a_file", part="groups"),
    ),
    mutant(
        "leave the checkpoint's directory",
        "saved_state:_stays_inside",
        "if os.path.isabs(name) or not inside.startswith(",
        "if False and not inside.startswith(",
        general("test_shard_outside_the_directory", how="parent"),
        general("test_shard_outside_the_directory", how="absolute"),
    ),
    mutant(
        "ignore what the index lists and the shard lacks",
        "validation:_StateCheck.check",
        "if shard.lists_every_id and self.saved.index is not None:",
        "if False:",
        general("test_index_lists_what_the_shard_lacks"),
        zero("test_index_lists_what_the_shard_lacks"),
    ),
    mutant(
        "ignore what the shard holds and the index does not list",
        "validation:_StateCheck._check_id",
        "if self.saved.index is not None and",
        "if False and",
        general("test_shard_holds_what_the_index_does_not_list"),
    ),
    mutant(
        "take saved ids that are no integers",
        "saved_state:checked_groups",
        "if isinstance(item, bool) or not isinstance(item, int)]",
        "if False]",
        general("test_id_that_is_no_number"),
    ),
]

FITTING = [
    mutant(
        "truncate groups to what both sides have",
        "destination:check_group_sizes",
        "fits = True\n",
        "return True\n",
        general("test_other_groups", change="moved"),
        general("test_other_groups", change="shorter"),
        zero("test_other_groups", change="shorter"),
    ),
    mutant(
        "ignore the number of groups",
        "destination:check_group_sizes",
        "if len(groups) != len(sizes):",
        "if False:",
        general("test_other_groups", change="one_more"),
        zero("test_other_groups", change="one_more"),
    ),
    mutant(
        "ignore ids of no group",
        "validation:_StateCheck._check_id",
        "elif isinstance(param_id, int) and param_id not in self.known:",
        "elif False:",
        general("test_id_in_no_group", "torch-one-file"),
        zero("test_id_in_no_group", "torch-one-file"),
    ),
    mutant(
        "accept any shape",
        "validation:_StateCheck._check_tensor",
        "if not elementwise or placement.fits(shape):",
        "if True:",
        general("test_state_of_another_shape", new_shape="transposed"),
        general("test_state_of_a_vector_one_element_too_long"),
        zero("test_state_of_another_shape", new_shape="longer"),
    ),
    mutant(
        "accept as many elements in another shape",
        "validation:_StateCheck._check_tensor",
        "if not elementwise or placement.fits(shape):",
        "if not elementwise or value.numel() == torch.Size(placement.global_shape).numel():",
        general("test_state_of_another_shape", new_shape="transposed"),
        zero("test_state_of_another_shape", new_shape="flat"),
    ),
    mutant(
        "accept groups of another optimizer class",
        "validation:_check_hyperparameters",
        "if missing:",
        "if False:",
        general("test_file_of_another_optimizer_class"),
        general("test_group_key_that_nothing_fills", key="betas"),
        zero("test_file_of_another_optimizer_class"),
    ),
    mutant(
        "ignore the names of parameters",
        "validation:_check_names",
        "if found != expected:",
        "if False:",
        general("test_parameter_names_in_another_order"),
    ),
    mutant(
        "refuse renamed parameters",
        "validation:_check_names",
        "if len(saved) != len(present) or sorted(map(str, saved)) != sorted(map(str, present)):",
        "if len(saved) != len(present):",
        general("test_renamed_parameters"),
    ),
    mutant(
        "let one id stand for two parameters",
        "validation:_targets",
        "elif known[0] is not param:",
        "elif False:",
        general("test_id_twice_in_the_groups"),
    ),
]

MUTANTS = {each.name: each for each in [*RESTORE, *AGREEMENT, *SLICES, *FILES, *FITTING]}
