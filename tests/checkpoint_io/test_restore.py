"""What happens inside one load that no file shows: hooks, subclasses, failures half-way, upstream's two functions."""

import collections
import copy
import json

import numpy
import pytest
import torch

from colossalai_fork.checkpoint_io import (
    GeneralCheckpointIO,
    load_param_groups_into_optimizer,
    load_states_into_optimizer,
)
from colossalai_fork.checkpoint_io.optimizer_restore.agreement import fingerprint
from colossalai_fork.checkpoint_io.optimizer_restore.destination import Destination
from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointDamagedError, CheckpointMismatchError
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import in_memory
from colossalai_fork.checkpoint_io.optimizer_restore.restore import restore
from colossalai_fork.gate.contract.comparison import differences


def trained(optimizer_class=torch.optim.Adam, count=3, steps=1, seed=0, **options):
    torch.manual_seed(seed)
    params = [torch.nn.Parameter(torch.randn(4, 3)) for _ in range(count)]
    optimizer = optimizer_class(params, **options)
    for _ in range(steps):
        for param in params:
            param.grad = torch.randn(4, 3)
        optimizer.step()
    return optimizer


def snapshot(optimizer):
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    params = [[id(param) for param in group["params"]] for group in optimizer.param_groups]
    return copy.deepcopy((optimizer.state_dict()["state"], groups)), params


def assert_same(one, other):
    assert differences(other, one) == []


def load(optimizer, state_dict, **options):
    restore(Destination(optimizer), lambda: in_memory(state_dict), **options)


def native(optimizer, state_dict):
    optimizer.load_state_dict(copy.deepcopy(state_dict))


class FailsHalfWay(torch.optim.Adam):
    def __setstate__(self, state):
        super().__setstate__(state)
        if getattr(self, "broken", False):
            self.param_groups[0]["lr"] = 77.0
            raise MemoryError("no room")


def test_a_failure_after_validation_leaves_no_state_and_the_old_groups():
    source, optimizer = trained(lr=0.5), trained(FailsHalfWay, lr=0.1, seed=1)
    groups, params = optimizer.param_groups, snapshot(optimizer)[1]
    optimizer.broken = True
    with pytest.raises(CheckpointDamagedError, match="no room") as caught:
        load(optimizer, source.state_dict())
    assert "state is empty now" in str(caught.value)
    assert dict(optimizer.state) == {}
    assert optimizer.param_groups is groups and groups[0]["lr"] == 0.1
    assert snapshot(optimizer)[1] == params
    optimizer.broken = False
    load(optimizer, source.state_dict())
    assert_same(optimizer.state_dict(), source.state_dict())


def test_an_interrupt_half_way_leaves_no_mixture():
    class Interrupted(torch.optim.Adam):
        def __setstate__(self, state):
            super().__setstate__(state)
            if getattr(self, "interrupt", False):
                raise KeyboardInterrupt

    optimizer = trained(Interrupted)
    optimizer.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        load(optimizer, trained(seed=1).state_dict())
    assert dict(optimizer.state) == {}


@pytest.mark.parametrize("low_cpu_mem_mode", [True, False])
def test_hooks_fire_once_and_post_hooks_only_after_success(low_cpu_mem_mode):
    optimizer, source = trained(seed=1), trained()
    fired = []
    optimizer.register_load_state_dict_pre_hook(lambda o, s: fired.append("pre"))
    optimizer.register_load_state_dict_post_hook(lambda o: fired.append(("post", len(o.state))))
    load(optimizer, source.state_dict(), low_cpu_mem_mode=low_cpu_mem_mode)
    assert fired == ["pre", ("post", 3)]
    fired.clear()
    before = snapshot(optimizer)
    with pytest.raises(CheckpointMismatchError):
        load(optimizer, trained(count=2).state_dict(), low_cpu_mem_mode=low_cpu_mem_mode)
    assert "pre" not in fired[1:] and not any(isinstance(item, tuple) for item in fired)
    assert_same(snapshot(optimizer), before)


def test_a_pre_hook_may_make_a_checkpoint_fit():
    def keep_first(optimizer, state_dict):
        return {
            "state": {0: state_dict["state"][0]},
            "param_groups": [{**group, "params": group["params"][:1]} for group in state_dict["param_groups"]],
        }

    source = trained(count=3)
    ours, theirs = trained(count=1, seed=1), trained(count=1, seed=1)
    for optimizer, loader in ((ours, load), (theirs, native)):
        optimizer.register_load_state_dict_pre_hook(keep_first)
        loader(optimizer, source.state_dict())
    assert_same(ours.state_dict(), theirs.state_dict())


def test_a_pre_hook_may_change_the_state_dict_in_place():
    def zero(optimizer, state_dict):
        for state in state_dict["state"].values():
            state["exp_avg"].zero_()
        state_dict["param_groups"][0]["lr"] = 0.25

    source = trained()
    ours, theirs = trained(seed=1), trained(seed=1)
    for optimizer, loader in ((ours, load), (theirs, native)):
        optimizer.register_load_state_dict_pre_hook(zero)
        loader(optimizer, source.state_dict())
    assert_same(ours.state_dict(), theirs.state_dict())
    assert source.state_dict()["state"][0]["exp_avg"].abs().sum() > 0, "the hook reached into the checkpoint itself"


def test_what_a_pre_hook_makes_is_validated_before_anything_changes():
    optimizer = trained(seed=1)
    optimizer.register_load_state_dict_pre_hook(lambda o, s: {**s, "param_groups": []})
    before = snapshot(optimizer)
    with pytest.raises(CheckpointMismatchError, match="number of parameter groups"):
        load(optimizer, trained().state_dict())
    assert_same(snapshot(optimizer), before)


def test_a_subclass_that_overrides_load_state_dict_is_asked():
    class Remembers(torch.optim.Adam):
        def load_state_dict(self, state_dict):
            self.seen = sorted(state_dict["state"]), state_dict["state"][0]["exp_avg"].shape
            super().load_state_dict(state_dict)

    optimizer, source = trained(Remembers, seed=1), trained()
    load(optimizer, source.state_dict())
    assert optimizer.seen == ([0, 1, 2], (4, 3))
    assert_same(optimizer.state_dict(), source.state_dict())


@pytest.mark.parametrize("goes_native", [True, False])
def test_a_subclass_that_overrides_load_state_dict_sees_texts(goes_native):
    class Reads(torch.optim.Adam):
        def load_state_dict(self, state_dict):
            self.seen = state_dict["state"][0]["note"], state_dict["state"][0]["nested"]
            self.seen = copy.deepcopy(self.seen[0].upper()), json.dumps(self.seen[1]), self.seen[0] == "text"
            if goes_native:
                super().load_state_dict(state_dict)
            else:
                self.state.update(zip(self.param_groups[0]["params"], state_dict["state"].values()))

    source, optimizer = trained(), trained(Reads, seed=1)
    nested = {"names": ["a", "", "bc", ("d", 3)], "number": 4}
    for state in source.state.values():
        state.update(note="text", nested=nested)
    load(optimizer, source.state_dict())
    assert optimizer.seen == ("TEXT", json.dumps(nested), True)
    for state in optimizer.state.values():
        assert state["note"] == "text" and state["nested"] == nested
        assert {type(state["note"]), *map(type, state["nested"]["names"][:3])} == {str}


def test_text_state_stays_text(tmp_path):
    source, optimizer = trained(), trained(seed=1)
    for state in source.state.values():
        state.update(note="text", nested={"names": ["a", b"b"]})
    io = GeneralCheckpointIO()
    io.save_optimizer(source, str(tmp_path), shard=True)
    io.load_optimizer(optimizer, str(tmp_path))
    for state in optimizer.state.values():
        assert state["note"] == "text" and state["nested"] == {"names": ["a", b"b"]}
        assert list(state)[:3] == ["step", "exp_avg", "exp_avg_sq"]


def test_state_of_the_optimizer_as_a_whole(tmp_path):
    source, optimizer = trained(), trained(seed=1)
    source.state["global"] = {"count": 3, "history": torch.arange(4.0)}
    optimizer.state["stale"] = {"count": 1}
    io = GeneralCheckpointIO()
    io.save_optimizer(source, str(tmp_path), shard=True)
    io.load_optimizer(optimizer, str(tmp_path))
    assert_same(optimizer.state_dict(), source.state_dict())
    assert "stale" not in optimizer.state


@pytest.mark.parametrize(
    "value", [5, "text", None, [torch.ones(2), {"deep": 1}], collections.namedtuple("Pair", "a b")(1, 2)]
)
def test_what_an_optimizer_keeps_under_a_name(value):
    source, ours, theirs = trained(), trained(seed=1), trained(seed=1)
    source.state["name"] = value
    load(ours, source.state_dict())
    native(theirs, source.state_dict())
    assert_same(ours.state_dict(), theirs.state_dict())


class Scales(torch.optim.Optimizer):
    """Keeps one number for each parameter, under a name that torch's optimizers use for a tensor of its shape."""

    def __init__(self, params, name="step_size"):
        self.name = name
        super().__init__(params, {"lr": 0.1})

    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param][self.name] = self.state[param].get(self.name, torch.tensor(0.5)) * 2


@pytest.mark.parametrize("name, steps", [("step_size", 0), ("sum", 0), ("sum", 1), ("exp_avg", 1)])
def test_one_number_under_a_name_that_is_known_for_tensors(name, steps):
    source, ours = trained(Scales, name=name, steps=3), trained(Scales, name=name, steps=steps, seed=1)
    load(ours, source.state_dict())
    assert_same(ours.state_dict(), source.state_dict())


@pytest.mark.parametrize("optimizer_class, key", [(torch.optim.Rprop, "step_size"), (torch.optim.Adagrad, "sum")])
@pytest.mark.parametrize("steps", [0, 1])
def test_one_number_where_the_optimizer_keeps_a_tensor(optimizer_class, key, steps):
    state_dict = trained(optimizer_class).state_dict()
    state_dict["state"][1][key] = torch.tensor(0.5)
    with pytest.raises(CheckpointMismatchError, match=key):
        load(trained(optimizer_class, steps=steps, seed=1), state_dict)


def test_state_that_was_loaded_in_a_wrong_shape_earlier_lets_no_more_of_it_in():
    state_dict, ours = trained(torch.optim.Adam).state_dict(), trained(torch.optim.Adam, seed=1)
    for param in ours.state:
        ours.state[param]["exp_avg"] = torch.ones(99)
    state_dict["state"][1]["exp_avg"] = torch.ones(99)
    with pytest.raises(CheckpointMismatchError, match="exp_avg"):
        load(ours, state_dict)


def holding_itself():
    value = [1]
    value.append(value)
    return value


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "state",
    [
        {1: {"odd": range(3)}},
        {1: {"odd": collections.namedtuple("Pair", "a b")(1, 2)}},
        {1: {"odd": numpy.ones(3)}},
        {1: {"odd": holding_itself()}},
        {1: {"odd": nested(400)}},
        {"odd": holding_itself()},
        {"odd": nested(400)},
    ],
    ids=["range", "pair", "array", "cycle", "deep", "cycle-under-a-name", "deep-under-a-name"],
)
def test_what_native_loading_cannot_rebuild_is_refused_before_anything_changes(state):
    optimizer = trained(seed=1)
    state_dict = trained().state_dict()
    state_dict["state"].update(state)
    before = snapshot(optimizer)
    with pytest.raises((CheckpointMismatchError, CheckpointDamagedError), match="odd"):
        load(optimizer, state_dict)
    assert_same(snapshot(optimizer), before)


def test_ranks_agree_on_groups_that_are_equal():
    def digest(order, device):
        groups = [{"params": [0], "tags": set(order), "by": lambda: device, "lr": OnDevice(torch.tensor(0.5), device)}]
        return fingerprint(groups)

    class OnDevice(torch.Tensor):
        """A tensor whose text names a device, as that of a tensor on an accelerator does."""

        def __new__(cls, data, device):
            return data.as_subclass(cls)

        def __init__(self, data, device):
            self.place = device

        def __repr__(self, **options):
            return f"tensor(0.5000, device='{self.place}')"

    # Eight and zero fall into one slot of a small set, so their order there is that of their arrival.
    assert list({0, 8}) != list({8, 0})
    assert digest([0, 8], "cuda:0") == digest([8, 0], "cuda:1")


def test_ranks_notice_groups_that_differ_anywhere():
    def digest(position):
        rates = torch.zeros(5000)
        rates[position] = 1
        return fingerprint([{"params": [0], "rates": rates}])

    assert digest(2500) != digest(2501)


def test_a_default_that_never_was_in_the_groups_is_not_missed():
    class Plain(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        def step(self):
            pass

    source, optimizer = trained(Plain), trained(Plain)
    # Unpickling, or any load, adds "differentiable" to the defaults of every optimizer, but not to its groups.
    native(optimizer, source.state_dict())
    assert "differentiable" in optimizer.defaults and "differentiable" not in optimizer.param_groups[0]
    load(optimizer, source.state_dict())


def test_a_parameter_that_a_group_holds_twice():
    shared = torch.nn.Parameter(torch.ones(2))
    other = torch.nn.Parameter(torch.ones(2))
    with pytest.warns(UserWarning, match="duplicate"):
        optimizer = torch.optim.SGD([shared, shared, other], momentum=0.9, lr=0.1)
    for param in (shared, other):
        param.grad = torch.ones(2)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.step()
    load(optimizer, saved)
    assert_same(optimizer.state_dict(), saved)


def test_nothing_aliases_the_state_dict():
    source, optimizer = trained(), trained(seed=1)
    saved = source.state_dict()
    load(optimizer, saved)
    for param_id, param in enumerate(optimizer.param_groups[0]["params"]):
        for key, value in optimizer.state[param].items():
            assert value.untyped_storage().data_ptr() != saved["state"][param_id][key].untyped_storage().data_ptr()


def test_groups_then_states_shard_by_shard_replace_everything(tmp_path):
    source, optimizer = trained(lr=0.5), trained(seed=1)
    saved = source.state_dict()
    path = tmp_path / "groups.bin"
    torch.save(saved["param_groups"], path)
    id_map = load_param_groups_into_optimizer(optimizer, str(path))
    assert dict(optimizer.state) == {} and optimizer.param_groups[0]["lr"] == 0.5
    assert [id_map[0], id_map[1], id_map[2]] == optimizer.param_groups[0]["params"]
    load_states_into_optimizer(optimizer, {"0": saved["state"][0]}, id_map)
    load_states_into_optimizer(optimizer, {2: saved["state"][2]}, id_map)
    del saved["state"][1]
    assert_same(optimizer.state_dict(), saved)


def test_states_through_a_map_of_the_callers_own_leave_the_others_alone():
    source, optimizer = trained(), trained(seed=1)
    saved, before = source.state_dict()["state"], copy.deepcopy(optimizer.state_dict())
    groups, states = optimizer.param_groups, optimizer.state
    id_map = {10 + position: param for position, param in enumerate(optimizer.param_groups[0]["params"])}
    load_states_into_optimizer(optimizer, {11: saved[1]}, id_map)
    assert optimizer.param_groups is groups and optimizer.state is states
    before["state"][1] = saved[1]
    assert_same(optimizer.state_dict(), before)


def test_a_state_that_is_loaded_again_replaces_the_earlier_one():
    source, optimizer = trained(), trained(seed=1)
    saved = source.state_dict()["state"]
    id_map = dict(enumerate(optimizer.param_groups[0]["params"]))
    optimizer.state[id_map[0]]["stale"] = torch.ones(1)
    # Two pipeline stages that share a parameter both save its state.
    load_states_into_optimizer(optimizer, {0: saved[0], 2: saved[2]}, id_map, strict=True)
    load_states_into_optimizer(optimizer, {0: saved[0], 1: saved[1]}, id_map)
    assert_same(dict(sorted(optimizer.state_dict()["state"].items())), saved)


def test_states_that_fail_half_way_leave_none():
    source, optimizer = trained(), trained(FailsHalfWay, lr=0.1, seed=1)
    groups, id_map = optimizer.param_groups, dict(enumerate(optimizer.param_groups[0]["params"]))
    optimizer.broken = True
    with pytest.raises(CheckpointDamagedError, match="no room"):
        load_states_into_optimizer(optimizer, {1: source.state_dict()["state"][1]}, id_map)
    assert dict(optimizer.state) == {} and optimizer.param_groups is groups
    assert groups[0]["params"] == list(id_map.values()) and groups[0]["lr"] == 0.1


def test_states_of_earlier_shards_are_not_copied_again():
    source, optimizer = trained(), trained(seed=1)
    saved = source.state_dict()["state"]
    id_map = dict(enumerate(optimizer.param_groups[0]["params"]))
    load_states_into_optimizer(optimizer, {0: saved[0]}, id_map)
    moments = optimizer.state[id_map[0]]["exp_avg"]
    load_states_into_optimizer(optimizer, {1: saved[1]}, id_map)
    assert optimizer.state[id_map[0]]["exp_avg"] is moments
    assert optimizer.state[id_map[1]]["exp_avg"] is not saved[1]["exp_avg"]


def test_states_that_do_not_fit_change_nothing():
    source, optimizer = trained(), trained(seed=1)
    saved = source.state_dict()["state"]
    id_map = dict(enumerate(optimizer.param_groups[0]["params"]))
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match="exp_avg"):
        load_states_into_optimizer(optimizer, {0: {**saved[0], "exp_avg": torch.ones(3, 4)}}, id_map)
    with pytest.raises(ValueError, match="parameter id 9"):
        load_states_into_optimizer(optimizer, {9: saved[0]}, id_map)
    assert_same(snapshot(optimizer), before)
    load_states_into_optimizer(optimizer, {9: saved[0], 0: saved[0]}, id_map, strict=True)
    assert_same(optimizer.state_dict()["state"][0], saved[0])
    assert 9 not in optimizer.state
