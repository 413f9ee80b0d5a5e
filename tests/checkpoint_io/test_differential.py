"""GeneralCheckpointIO against torch's own loading, over every optimizer class of the installed torch.

Each case makes a random optimizer, saves it, loads it into another one that has a random past, and compares the outcome bit
by bit with what ``Optimizer.load_state_dict`` makes of the same state, before and after one more step. How many cases there
are in all is set by ``--differential-cases``.
"""

import copy
import os
import tempfile

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from optimizer_cases import OPTIONS, make, optimizer_names, scenarios, take_step

from colossalai_fork.gate.contract.checkpoint_files import CheckpointFiles, is_safetensors
from colossalai_fork.gate.contract.comparison import differences, look_at, loose_storages, twin_of


@pytest.fixture(scope="module")
def checkpoint_io(request):
    """The class under test, or ColossalAI's own where the overlay is switched off."""
    if request.config.getoption("--unmodified") or request.config.getoption("--overlay") == "off":
        from colossalai.checkpoint_io import GeneralCheckpointIO

        from colossalai_fork.gate.cpu import stand_in

        with stand_in.stand_ins():
            yield GeneralCheckpointIO()
    else:
        from colossalai_fork.checkpoint_io import GeneralCheckpointIO

        yield GeneralCheckpointIO()


def pytest_generate_tests(metafunc):
    """One test for each optimizer class."""
    if "optimizer_name" in metafunc.fixturenames:
        metafunc.parametrize("optimizer_name", optimizer_names())


def register_hooks(optimizer, kind):
    """Register load hooks.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer.
        kind (str): as in :class:`optimizer_cases.Scenario`.

    Returns:
        list: grows with each call of a hook.
    """
    calls = []

    def before(self, state_dict):
        calls.append("before")
        if kind == "changing":
            groups = [{**group, "lr": group["lr"] * 0.5} for group in state_dict["param_groups"]]
            return {"state": state_dict["state"], "param_groups": groups}

    if kind != "none":
        optimizer.register_load_state_dict_pre_hook(before)
        optimizer.register_load_state_dict_post_hook(lambda self: calls.append("after"))
    return calls


def save(scenario, checkpoint_io, saved, optimizer, directory):
    """Write the checkpoint of a scenario.

    Args:
        scenario (Scenario): the scenario.
        checkpoint_io (GeneralCheckpointIO): what saves it, if the scenario says so.
        saved (dict): the state dict.
        optimizer (torch.optim.Optimizer): where the state dict is from.
        directory (str): an empty directory.

    Returns:
        Tuple[str, dict]: what to load, and the state dict that the files hold.
    """
    if scenario.shards == 0 and scenario.layout == "torch-sharded":
        checkpoint_io.save_optimizer(optimizer, directory, shard=True, size_per_shard=scenario.shard_size)
        return directory, optimizer.state_dict()
    path = CheckpointFiles(saved, scenario.layout, max(1, scenario.shards)).write(os.path.join(directory, "checkpoint"))
    if is_safetensors(scenario.layout):
        # None leaves no trace there, and neither does a parameter that has nothing else.
        states = {
            param_id: {key: value for key, value in state.items() if value is not None}
            for param_id, state in saved["state"].items()
        }
        saved = {**saved, "state": {param_id: state for param_id, state in states.items() if state}}
    return path, saved


def check(scenario, checkpoint_io):
    """Compare loading with torch's own.

    Args:
        scenario (Scenario): the scenario.
        checkpoint_io (GeneralCheckpointIO): the class under test.
    """
    source = make(scenario, scenario.source, seed=1)
    destination = make(scenario, scenario.destination, seed=2)
    twin = twin_of(destination)
    calls, expected_calls = register_hooks(destination, scenario.hooks), register_hooks(twin, scenario.hooks)
    saved = copy.deepcopy(source.state_dict())
    for group in saved["param_groups"]:
        for key in scenario.dropped:
            group.pop(key, None)
    with tempfile.TemporaryDirectory() as directory:
        path, held = save(scenario, checkpoint_io, saved, source, directory)
        twin.load_state_dict(copy.deepcopy(held))
        # Where nothing fills a key that the next step needs, the file is refused; the contract has cases for that.
        assume(all(set(before) <= set(after) for before, after in zip(destination.param_groups, twin.param_groups)))
        checkpoint_io.load_optimizer(
            destination, path, low_cpu_mem_mode=scenario.low_cpu_mem_mode, num_threads=scenario.num_threads
        )
    assert calls == expected_calls
    assert differences(look_at(twin), look_at(destination)) == []
    assert loose_storages(destination) == []
    everything = range(len(scenario.shapes))
    for optimizer in (twin, destination):
        take_step(scenario, optimizer, everything, torch.Generator().manual_seed(3))
    assert differences(look_at(twin), look_at(destination)) == []
    parameters = [
        [parameter.detach() for group in optimizer.param_groups for parameter in group["params"]]
        for optimizer in (twin, destination)
    ]
    assert differences(*parameters) == []


def test_equals_native_loading(optimizer_name, checkpoint_io, request):
    """Random cases of one optimizer class."""
    examples = -(-request.config.getoption("--differential-cases") // len(optimizer_names()))

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(scenario=scenarios(optimizer_name))
    def run(scenario):
        check(scenario, checkpoint_io)

    run()


def test_every_optimizer_of_this_torch_is_known():
    """A class that a newer torch brings must get options of its own."""
    assert set(optimizer_names()) <= set(OPTIONS)
