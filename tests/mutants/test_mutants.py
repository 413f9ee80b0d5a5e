"""The contract cases notice every fault of a table of faults.

Each fault is put into the loaders inside worker processes that are already running, for the length of one case.
"""

import inspect
import time

import all_mutants
import mutation
import pytest

from colossalai_fork.gate.configurations import GeneralContract, LowLevelZeroContract, TorchDDPContract
from colossalai_fork.gate.configurations.gemini import GeminiContract
from colossalai_fork.gate.configurations.gemini_tensor_parallel import TensorParallelGeminiCases
from colossalai_fork.gate.configurations.hybrid_parallel import HybridParallelContract
from colossalai_fork.gate.configurations.moe import MoEContract
from colossalai_fork.gate.configurations.real_models import LlamaContract, TiedMixtralContract
from colossalai_fork.gate.configurations.torch_fsdp import TorchFSDPContract
from colossalai_fork.gate.contract.cases import refusing
from colossalai_fork.gate.contract.cases.own_loaders import OwnLoaderCases
from colossalai_fork.gate.workers.outcomes import Status
from colossalai_fork.gate.workers.worker import Call

#: Seconds that a case may take, and those that one may take with a fault that hangs, at least.
DEADLINE, DEADLINE_OF_HANGING = 60.0, 2.0


class Mutated:
    """Runs a case of the configuration with a fault."""

    def with_mutant(self, mutant, method, arguments):
        run = getattr(type(self), method).run_here
        if mutant is None:
            run(self, **arguments)
        else:
            with all_mutants.MUTANTS[mutant].applied():
                run(self, **arguments)

    # The attribute under which worker processes look for what to call.
    with_mutant.run_here = with_mutant


class General(Mutated, GeneralContract):
    """One process."""


class DataParallel(Mutated, TorchDDPContract):
    """Two processes that hold the whole state."""

    world_size = 2


class Zero(Mutated, LowLevelZeroContract):
    """Two processes that hold slices."""

    world_size = 2


class TensorParallel(Mutated, HybridParallelContract):
    """Two processes, weights cut in two, some of them padded."""

    world_size = 2
    tensor_parallel = 2


class Pipeline(Mutated, HybridParallelContract):
    """Two processes, a pipeline stage on each."""

    world_size = 2
    stages = 2


class HybridZero(Mutated, HybridParallelContract):
    """Two processes, slices under the hybrid parallel plugin."""

    world_size = 2
    zero = 1
    precision = "bf16"


class ExpertParallel(Mutated, MoEContract):
    """Two processes, half of the experts on each."""

    world_size = 2
    expert_parallel = 2


class Experts(Mutated, MoEContract):
    """Two processes, slices of all experts on both."""

    world_size = 2


class ExpertsTensorParallel(Mutated, MoEContract):
    """Two processes, all weights cut in two."""

    world_size = 2
    tensor_parallel = 2


class Gemini(Mutated, GeminiContract):
    """Two processes, chunks cut in two."""

    world_size = 2


class GeminiGathered(Mutated, GeminiContract):
    """Two processes that keep whole chunks."""

    world_size = 2
    cuts = False
    gathered = True


class GeminiOffload(Mutated, GeminiContract):
    """Two processes, all of the state in host memory, in the precision of the model."""

    world_size = 2
    master_weights = False
    options = {"offload_optim_frac": 1.0, "offload_param_frac": 0.5}


class GeminiTensorParallel(Mutated, TensorParallelGeminiCases):
    """Two processes, each a half of a model."""


class FSDP(Mutated, TorchFSDPContract):
    """Two processes, slices of flat parameters."""

    world_size = 2


class TiedPipeline(Mutated, LlamaContract):
    """Two stages that share the embedding of a Llama."""

    world_size = 2
    stages = 2
    tied = True


class ExpertsWithoutZero(Mutated, MoEContract):
    """Two processes, all of all experts on both."""

    world_size = 2
    zero = 0
    precision = "fp32"


class ExpertsTensorParallelWithoutZero(Mutated, MoEContract):
    """Two processes, all weights cut in two, which have rows and columns still."""

    world_size = 2
    tensor_parallel = 2
    zero = 0
    precision = "fp32"


class OwnLoaders(Mutated, OwnLoaderCases, GeneralContract):
    """A loader of somebody's own."""


class TiedExperts(Mutated, TiedMixtralContract):
    """Two processes, half of the experts of a Mixtral on each, and a vocabulary that is padded."""

    world_size = 2
    expert_parallel = 2


CONFIGURATIONS = {cls.__name__: cls for cls in Mutated.__subclasses__()}
PAIRS = [(mutant, catch) for mutant in all_mutants.MUTANTS.values() for catch in mutant.catches]
# Sets of workers change places as rarely as possible.
PAIRS.sort(key=lambda pair: CONFIGURATIONS[pair[1].configuration].world_size)


@pytest.fixture
def run(request, tmp_path):
    gate = request.getfixturevalue("colossalai_fork_gate")

    def run(catch, mutant=None, deadline=DEADLINE):
        cls = CONFIGURATIONS[catch.configuration]
        arguments = dict(catch.arguments)
        if "change" in arguments:
            arguments["change"] = getattr(refusing, arguments["change"])
        arguments = {"mutant": mutant and mutant.name, "method": catch.method, "arguments": arguments}
        directory = tmp_path / ("faulty" if mutant else "sound")
        directory.mkdir()
        call = Call(cls.__module__, inspect.getfile(cls), cls.__qualname__, "with_mutant", arguments, str(directory))
        return gate.pool.get(cls.world_size, True).run(call, deadline)

    return run


@pytest.fixture(scope="module")
def sound_outcomes():
    """What came of cases without any fault, and in how many seconds: several faults are shown to the same case."""
    return {}


@pytest.mark.parametrize("mutant, catch", PAIRS, ids=lambda value: getattr(value, "name", None) or str(value))
def test_mutant_is_caught(run, sound_outcomes, mutant, catch):
    reason = CONFIGURATIONS[catch.configuration]().why_not(catch.method, catch.arguments)
    if reason and "this torch has no" in reason:
        pytest.skip(reason)
    assert not reason, f"the case does not apply: {reason}"
    if str(catch) not in sound_outcomes:
        started = time.monotonic()
        outcome = run(catch)
        sound_outcomes[str(catch)] = outcome, time.monotonic() - started
    sound, seconds = sound_outcomes[str(catch)]
    if sound.status is Status.NOT_APPLICABLE and "this torch has no" in sound.describe():
        pytest.skip(sound.describe())
    assert sound.status is Status.HELD, f"the case proves nothing, since it does not hold here: {sound.describe()}"
    # A slow machine must not be taken for a fault that hangs.
    faulty = run(catch, mutant, max(DEADLINE_OF_HANGING, 5 * seconds) if mutant.hangs else DEADLINE)
    assert faulty.status is not Status.BROKEN, faulty.describe()
    assert faulty.status is Status.VIOLATED, f"{catch} does not notice this: {mutant.name}"


def test_there_are_enough_mutants():
    assert len(all_mutants.ALL) >= 25
    assert len(all_mutants.ALL) == len(all_mutants.MUTANTS), "two mutants have one name"
    assert all(mutant.catches for mutant in all_mutants.ALL)


@pytest.mark.parametrize("name", mutation.CLASSES)
def test_there_are_mutants_of_every_class(name):
    assert sum(any(catch.configuration == name for catch in mutant.catches) for mutant in all_mutants.ALL) >= 25
