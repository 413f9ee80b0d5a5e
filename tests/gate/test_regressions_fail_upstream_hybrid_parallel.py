"""The contract's regression tests fail on unmodified ColossalAI under hybrid parallelism and with experts too; see the
module without suffix."""

from unmodified import needs_unmodified_colossalai

from colossalai_fork.gate.configurations.hybrid_parallel import HybridParallelContract, without
from colossalai_fork.gate.configurations.moe import MoEContract
from colossalai_fork.gate.contract.cases.damage import DamageCases
from colossalai_fork.gate.contract.cases.ranks import RankCases
from colossalai_fork.gate.contract.cases.resources import ResourceCases

pytestmark = needs_unmodified_colossalai


class Unmodified:
    """ColossalAI as installed, judged the other way round. Files are damaged, and ranks fail, in the same way elsewhere."""

    overlay, faults_expected = False, True
    world_size = 2
    layouts = ("torch-sharded",)
    # Whether it saves other optimizers depends on more than a guard says; it copies texts, and passes.
    test_saved_by_another_optimizer = None
    test_text_stays_text = None


@without(DamageCases, RankCases, ResourceCases)
class TestZero(Unmodified, HybridParallelContract):
    """Slices."""

    zero = 1
    precision = "bf16"


@without(DamageCases, RankCases, ResourceCases)
class TestTensorParallel(Unmodified, HybridParallelContract):
    """Parts. It cannot save weights that are padded before they are cut, so there are none."""

    tensor_parallel = 2

    def recipe(self, **changes):
        return super().recipe(**{"shapes": ((4, 3), (6,), (3, 4), (8,)), **changes})


@without(DamageCases, RankCases, ResourceCases)
class TestPipeline(Unmodified, HybridParallelContract):
    """Stages."""

    stages = 2


@without(DamageCases, RankCases, ResourceCases)
class TestExpertsDataParallel(Unmodified, MoEContract):
    """Slices of experts. It cannot save one file, which is one of the ways that these cases take."""

    test_save_load_and_train_on = None
