"""Faults of what every class does alike: release, load, confirm, and agree with the other ranks."""

from mutation import everywhere, mutant, together, where

NATIVE = 'self.optimizer.load_state_dict({"state": states, "param_groups": groups})'
AFTER_NATIVE = NATIVE + "\n" + " " * 8

RESTORE = [
    mutant(
        "fire load hooks twice",
        "restore:_hooks_held_back",
        "optimizer.__dict__[name] = OrderedDict()",
        "pass",
        everywhere("test_hooks_fire_once"),
    ),
    mutant(
        "keep no entry whose saved state is empty",
        "restore:_Loading.load",
        "if self.destination.empty_is_absent:",
        "if True:",
        everywhere("test_saved_empty_entry", but="Gemini FSDP"),
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
