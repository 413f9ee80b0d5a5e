"""Faults of agreeing with the other ranks."""

import os

from mutation import fault, mutant, together, where

from colossalai_fork.checkpoint_io.optimizer_restore.agreement import LOADED, VALIDATED
from colossalai_fork.checkpoint_io.optimizer_restore.errors import Problem

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


@fault("agreement:agree", together("test_one_rank_fails", fault="a shape", failing="first"))
def agree_only_that_something_failed_not_where_and_why(agree, *arguments):
    return [Problem("another rank failed", damaged=True)] if agree(*arguments) else []


@fault("agreement:agree", together("test_ranks_that_see_different_checkpoints"))
def do_not_compare_what_the_ranks_have_read(agree, problems, point, group=None, digest=0):
    return agree(problems, point, group)


@fault(
    "agreement:agree",
    together("test_loading_fails_after_validation", failing="first"),
    together("test_loading_fails_after_validation", failing="last"),
)
def do_not_agree_after_loading(agree, problems, point, *arguments):
    return problems if point == LOADED else agree(problems, point, *arguments)


@fault("index_file:is_sharded", together("test_one_rank_fails", fault="no directory", failing="first"), hangs=True)
def raise_where_there_is_no_checkpoint_though_other_ranks_wait(is_sharded, checkpoint):
    os.stat(checkpoint)
    return is_sharded(checkpoint)


@fault("restore:restore", together("test_one_rank_fails", fault="a shape", failing="last"))
def say_on_the_failing_rank_only_why(restore, *arguments):
    try:
        restore(*arguments)
    except ValueError as error:
        mine = [problem for problem in error.problems if problem.rank == _rank()]
        raise mine and error or ValueError("the checkpoint was not loaded") from None


@fault(
    "low_level_zero_destination:LowLevelZeroDestination.__init__",
    where("Zero", "test_state_dict_of_another_optimizer", None),
    where("Zero", "test_one_rank_fails", fault="missing shard", failing="first"),
)
def load_with_ZeRO_on_this_rank_alone(init, self, optimizer, ranks=None):
    init(self, optimizer)


@fault(
    "gemini_destination:GeminiDestination.__init__",
    where("Gemini", "test_state_dict_of_another_optimizer", None),
)
def load_a_state_dict_of_Gemini_on_this_rank_alone(init, self, optimizer, ranks=None):
    init(self, optimizer)


@fault(
    "moe_destination:MoEDestination.placement",
    where("ExpertParallel", "test_full_checkpoint"),
)
def expect_nothing_but_gathered_state_and_give_it_to_every_rank(placement, self, param):
    from colossalai_fork.checkpoint_io.optimizer_restore.placement import Replicated

    return Replicated(placement(self, param).global_shape)


@fault("restore:_index_of", together("test_ranks_that_see_different_indexes"))
def do_not_compare_the_indexes(index_of, saved):
    return []


# Where only the points are not compared, the digests tell.
@fault("agreement:_gathered", together("test_interrupted_rank_that_begins_again"), hangs=True)
def take_the_ranks_to_be_at_the_same_point(gathered, problems, point, group, digest):
    return gathered(problems, VALIDATED, group, 0)


@fault(
    "restore:_tried",
    together("test_interrupt_before_loading", failing="first"),
    together("test_interrupt_while_loading", failing="last"),
    hangs=True,
)
def let_an_interrupt_pass(tried, step):
    try:
        return step(), None
    except Exception as error:
        return None, error


def _rank():
    import torch.distributed

    return torch.distributed.get_rank()
