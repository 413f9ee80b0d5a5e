"""The contract's regression tests fail on unmodified ColossalAI under hybrid parallelism and with experts too; see the
module without suffix."""

from unmodified import Unmodified, needs_unmodified_colossalai

from colossalai_fork.gate.configurations.hybrid_parallel import HybridParallelContract, without
from colossalai_fork.gate.configurations.moe import MoEContract
from colossalai_fork.gate.contract.cases.damage import DamageCases
from colossalai_fork.gate.contract.cases.ranks import RankCases
from colossalai_fork.gate.contract.cases.resources import ResourceCases

pytestmark = needs_unmodified_colossalai


class OneLayout(Unmodified):
    """ColossalAI as installed. Files are damaged, and ranks fail, in the same way elsewhere."""

    world_size = 2
    layouts = ("torch-sharded",)
    # Whether it saves other optimizers is not for this table to say; it copies texts, and passes.
    test_saved_by_another_optimizer = None
    test_text_stays_text = None


@without(DamageCases, RankCases, ResourceCases)
class TestZero(OneLayout, HybridParallelContract):
    """Slices."""

    zero = 1
    precision = "bf16"


@without(DamageCases, RankCases, ResourceCases)
class TestTensorParallel(OneLayout, HybridParallelContract):
    """Parts. It cannot save weights that are padded before they are cut, so there are none."""

    tensor_parallel = 2

    def recipe(self, **changes):
        return super().recipe(**{"shapes": ((4, 3), (6,), (3, 4), (8,)), **changes})


@without(DamageCases, RankCases, ResourceCases)
class TestPipeline(OneLayout, HybridParallelContract):
    """Stages."""

    stages = 2


@without(DamageCases, RankCases, ResourceCases)
class TestExpertsDataParallel(OneLayout, MoEContract):
    """Slices of experts. It cannot save one file, which is one of the ways that these cases take."""

    test_save_load_and_train_on = None
