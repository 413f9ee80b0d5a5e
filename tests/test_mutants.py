"""The contract cases notice every fault of a table of faults.

Each fault is put into the loaders inside worker processes that are already running, for the length of one case.
"""

import inspect

import mutants
import pytest

from colossalai_fork.gate import cases_refusing
from colossalai_fork.gate.configurations import GeneralContract, LowLevelZeroContract, TorchDDPContract
from colossalai_fork.gate.outcomes import Status
from colossalai_fork.gate.worker_main import Call

#: Seconds that a case may take, faulty or not, and those of a case whose fault hangs.
DEADLINE, DEADLINE_OF_HANGING = 60.0, 5.0


class Mutated:
    """Runs a case of the configuration with a fault."""

    def with_mutant(self, mutant, method, arguments):
        run = getattr(type(self), method).run_here
        if mutant is None:
            run(self, **arguments)
        else:
            with mutants.MUTANTS[mutant].applied():
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


CONFIGURATIONS = {cls.__name__: cls for cls in (General, DataParallel, Zero)}
PAIRS = [(mutant, catch) for mutant in mutants.MUTANTS.values() for catch in mutant.catches]
# Sets of workers change places as rarely as possible.
PAIRS.sort(key=lambda pair: CONFIGURATIONS[pair[1].configuration].world_size)


@pytest.fixture
def run(request, tmp_path):
    gate = request.getfixturevalue("colossalai_fork_gate")

    def run(catch, mutant=None):
        cls = CONFIGURATIONS[catch.configuration]
        arguments = dict(catch.arguments)
        if "change" in arguments:
            arguments["change"] = getattr(cases_refusing, arguments["change"])
        arguments = {"mutant": mutant, "method": catch.method, "arguments": arguments}
        directory = tmp_path / ("faulty" if mutant else "sound")
        directory.mkdir()
        call = Call(cls.__module__, inspect.getfile(cls), cls.__qualname__, "with_mutant", arguments, str(directory))
        deadline = DEADLINE_OF_HANGING if getattr(cls, catch.method).case.hangs else DEADLINE
        return gate.pool.get(cls.world_size, True).run(call, deadline)

    return run


@pytest.mark.parametrize("mutant, catch", PAIRS, ids=lambda value: getattr(value, "name", None) or str(value))
def test_mutant_is_caught(run, mutant, catch):
    sound = run(catch)
    if sound.status is Status.NOT_APPLICABLE and "this torch has no" in sound.describe():
        pytest.skip(sound.describe())
    assert sound.status is Status.HELD, f"the case proves nothing, since it does not hold here: {sound.describe()}"
    faulty = run(catch, mutant.name)
    assert faulty.status is not Status.BROKEN, faulty.describe()
    assert faulty.status is Status.VIOLATED, f"{catch} does not notice this: {mutant.name}"
    assert all("ContractViolation" in rank.text or rank.status is not Status.VIOLATED for rank in faulty.ranks)


def test_there_are_enough_mutants():
    assert len(mutants.MUTANTS) >= 25
    everything = [*mutants.RESTORE, *mutants.AGREEMENT, *mutants.SLICES, *mutants.FILES, *mutants.FITTING]
    assert len(mutants.MUTANTS) == len(everything), "two mutants have one name"
    assert all(mutant.catches for mutant in everything)
