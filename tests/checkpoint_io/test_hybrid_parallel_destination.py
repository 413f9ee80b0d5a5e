"""Which saved groups and ids an optimizer under hybrid parallelism takes."""

import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointMismatchError
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import in_memory
from colossalai_fork.checkpoint_io.optimizer_restore.hybrid_parallel_destination import HybridParallelDestination
from colossalai_fork.checkpoint_io.optimizer_restore.restore import restore


class Wrapper(types.SimpleNamespace):
    """What the plugin makes of an optimizer: it keeps some parameters here, and a record of all."""

    def get_master_to_working_map(self):
        return None


def boosted(held=(0, 1, 2, 3), groups=((0, 1), (2, 3)), shapes=((2,), (3,), (4,), (5,)), **options):
    """An optimizer of parameters of which this pipeline stage holds some."""
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    optim = torch.optim.SGD(
        [{"params": [params[each] for each in ids], "lr": 0.1 * (1 + n)} for n, ids in enumerate(groups)],
        lr=0.1,
        momentum=0.9,
        **options,
    )
    numbers = iter(range(len(params)))
    info = {
        "param_groups": [{"params": [next(numbers) for _ in ids]} for ids in groups],
        "param2id": {id(param): number for number, param in enumerate(params)},
        "param2shape": {id(param): param.shape for param in params},
    }
    for group in optim.param_groups:
        group["params"] = [param for param in group["params"] if info["param2id"][id(param)] in held]
    return Wrapper(optim=optim, param_info=info, params=params)


def trained(wrapper, value=1.0):
    for param in wrapper.params:
        param.grad = torch.full_like(param, value)
    wrapper.optim.step()
    return wrapper


def saved(**options):
    return trained(boosted(**options), 2.0).optim.state_dict()


def load(wrapper, state_dict):
    restore(HybridParallelDestination(wrapper, 0, 1), lambda: in_memory(state_dict))


def momenta(wrapper):
    ids = wrapper.param_info["param2id"]
    return {ids[id(param)]: state["momentum_buffer"].tolist() for param, state in wrapper.optim.state.items()}


def test_a_stage_takes_its_own_ids():
    wrapper = trained(boosted(held=(1, 2)))
    load(wrapper, saved())
    assert momenta(wrapper) == {1: [2.0] * 3, 2: [2.0] * 4}
    assert [len(group["params"]) for group in wrapper.optim.param_groups] == [1, 1]


@given(st.data())
def test_stages_and_experts_together_take_everything(data):
    """However the parameters are dealt to the ranks, each takes its own; what nobody else has is nobody else's."""
    shapes = tuple((length,) for length in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=6)))
    split = data.draw(st.integers(0, len(shapes)))
    groups = (tuple(range(split)), tuple(range(split, len(shapes))))
    ranks = data.draw(st.integers(1, 4))
    dealt = [data.draw(st.integers(0, ranks - 1)) for _ in shapes]
    state_dict = saved(held=range(len(shapes)), groups=groups, shapes=shapes)
    for number, state in state_dict["state"].items():
        state["momentum_buffer"] += number
    found = {}
    for rank in range(ranks):
        held = [number for number, place in enumerate(dealt) if place == rank]
        wrapper = trained(boosted(held=held, groups=groups, shapes=shapes))
        load(wrapper, state_dict)
        assert set(momenta(wrapper)) == set(held)
        found.update(momenta(wrapper))
    assert found == {number: state["momentum_buffer"].tolist() for number, state in state_dict["state"].items()}


def test_a_stage_may_hold_none_of_a_group():
    wrapper = trained(boosted(held=(0,)))
    load(wrapper, saved())
    assert momenta(wrapper) == {0: [2.0] * 2}
    assert [group["lr"] for group in wrapper.optim.param_groups] == [0.1, 0.2]


@pytest.mark.parametrize(
    "groups, said",
    [
        (((0, 1, 2, 3),), "the number of parameter groups differs (expected 2, found 1)"),
        (((0,), (1,), (2, 3)), "the number of parameter groups differs (expected 2, found 3)"),
        (((0,), (1, 2, 3)), "parameter group 0 has another number of parameters (expected 2, found 1)"),
    ],
)
def test_other_groups_are_refused(groups, said):
    # The stage holds two parameters, one of each group: counting those says nothing.
    wrapper = trained(boosted(held=(0, 3)))
    before = momenta(wrapper)
    with pytest.raises(CheckpointMismatchError) as caught:
        load(wrapper, saved(groups=groups))
    assert said in str(caught.value)
    assert momenta(wrapper) == before and [group["lr"] for group in wrapper.optim.param_groups] == [0.1, 0.2]


def test_other_ids_are_refused_by_name():
    wrapper = trained(boosted())
    state_dict = saved()
    state_dict["param_groups"][0]["params"], state_dict["param_groups"][1]["params"] = [0, 2], [1, 3]
    with pytest.raises(CheckpointMismatchError) as caught:
        load(wrapper, state_dict)
    assert "parameter group 0 holds other parameters (expected ids [1], found ids [2])" in str(caught.value)
    assert "parameter group 1 holds other parameters (expected ids [2], found ids [1])" in str(caught.value)


def test_a_group_that_the_wrapper_added_keeps_its_hyperparameters():
    wrapper = trained(boosted(groups=((0, 1, 2, 3),)))
    experts = wrapper.optim.param_groups[0]["params"][2:]
    del wrapper.optim.param_groups[0]["params"][2:]
    wrapper.optim.add_param_group({"params": experts, "lr": 0.7})
    state_dict = saved(groups=((0, 1, 2, 3),))
    state_dict["param_groups"][0]["lr"] = 0.4
    load(wrapper, state_dict)
    assert [group["lr"] for group in wrapper.optim.param_groups] == [0.4, 0.7]
    assert momenta(wrapper) == {each: [2.0] * (each + 2) for each in range(4)}


def test_a_parameter_whose_shape_the_record_does_not_explain():
    wrapper = trained(boosted())
    wrapper.param_info["param2shape"][id(wrapper.params[0])] = torch.Size((4, 2))
    with pytest.raises(RuntimeError, match="cannot be the part"):
        load(wrapper, saved())
    assert momenta(wrapper) == {each: [1.0] * (each + 2) for each in range(4)}
