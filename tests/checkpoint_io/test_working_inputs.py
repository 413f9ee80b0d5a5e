"""Inputs that unmodified ColossalAI loads or saves right, found in public reports and with optimizers of public packages."""

import argparse
import copy
import enum
import fractions
import json
import os
import pathlib

import numpy
import pytest
import torch

import colossalai_fork
from colossalai_fork.checkpoint_io import GeneralCheckpointIO, load_states_into_optimizer
from colossalai_fork.checkpoint_io.checkpoint_io_base import CheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointLoadError, CheckpointMismatchError
from colossalai_fork.gate.contract.comparison import differences
from colossalai_fork.gate.workers.outcomes import Status
from colossalai_fork.gate.workers.pool import WorkerPool
from colossalai_fork.gate.workers.worker import Call


def trained(optimizer_class=torch.optim.Adam, count=3, steps=2, seed=0, **options):
    torch.manual_seed(seed)
    params = [torch.nn.Parameter(torch.randn(4, 3)) for _ in range(count)]
    optimizer = optimizer_class(params, **options)
    for _ in range(steps):
        for param in params:
            param.grad = torch.randn(4, 3)
        optimizer.step()
    return optimizer


def load(optimizer, state_dict, path):
    torch.save(state_dict, path)
    GeneralCheckpointIO().load_optimizer(optimizer, str(path))


def write_shards(state_dict, directory, groups_of_ids):
    index = {}
    directory.mkdir()
    for number, ids in enumerate(groups_of_ids):
        name = f"pytorch_optim-{number:05d}.bin"
        torch.save({each: state_dict["state"][each] for each in ids}, directory / name)
        index.update({str(each): name for each in ids})
    torch.save(state_dict["param_groups"], directory / "groups.bin")
    content = {"metadata": {"param_groups": "groups.bin"}, "weight_map": index}
    (directory / "pytorch_optim.bin.index.json").write_text(json.dumps(content))
    return directory


def refused_unchanged(optimizer, action, *expected):
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(CheckpointLoadError) as caught:
        action()
    assert differences(before, optimizer.state_dict()) == []
    for text in expected:
        assert text in str(caught.value)
    return caught.value


# ======================================
# an optimizer's own layout (31 to 34)
# ======================================


class Lookahead(torch.optim.Optimizer):
    """Wraps another optimizer, and saves it under a name of its own."""

    def __init__(self, params, fails=False):
        self.inner = torch.optim.Adam(params, lr=0.1)
        self.count = 0
        self.fails = fails
        super().__init__(self.inner.param_groups, {})
        self.state, self.param_groups = self.inner.state, self.inner.param_groups

    def step(self):
        self.inner.step()
        self.count += 1

    def state_dict(self):
        return {"inner": self.inner.state_dict(), "count": self.count}

    def load_state_dict(self, state_dict):
        self.inner.load_state_dict(state_dict["inner"])
        self.state, self.param_groups = self.inner.state, self.inner.param_groups
        self.count = state_dict["count"]
        if self.fails:
            raise RuntimeError("broken on purpose")


def test_an_optimizer_that_wraps_another(tmp_path):
    source, optimizer = trained(Lookahead, steps=3), trained(Lookahead, steps=1, seed=1)
    load(optimizer, source.state_dict(), tmp_path / "optim.bin")
    assert differences(source.state_dict(), optimizer.state_dict()) == []
    assert optimizer.count == 3


def test_an_own_layout_that_cannot_be_loaded_is_undone(tmp_path):
    source, optimizer = trained(Lookahead, steps=3), trained(Lookahead, steps=1, seed=1)
    before = copy.deepcopy(optimizer.inner.state_dict())
    params = list(optimizer.param_groups[0]["params"])
    optimizer.fails = True
    with pytest.raises(CheckpointLoadError, match="broken on purpose") as caught:
        load(optimizer, source.state_dict(), tmp_path / "optim.bin")
    assert "its own affair" in str(caught.value)
    for param, state in enumerate(before["state"].values()):
        assert differences(state, optimizer.state[params[param]]) == []
    assert optimizer.param_groups[0]["params"] == params


class Counts(torch.optim.Adam):
    """Adds a key at the top of its state dict."""

    total = 0

    def state_dict(self):
        return {**super().state_dict(), "total": self.total}

    def load_state_dict(self, state_dict):
        self.total = state_dict["total"]
        super().load_state_dict(state_dict)


def test_a_key_beside_state_and_groups_reaches_load_state_dict(tmp_path):
    source, optimizer = trained(Counts), trained(Counts, seed=1)
    source.total = 7
    load(optimizer, source.state_dict(), tmp_path / "optim.bin")
    assert optimizer.total == 7
    assert differences(source.state_dict(), optimizer.state_dict()) == []


def test_a_key_beside_state_and_groups_reaches_pre_hooks(tmp_path):
    source, optimizer = trained(), trained(seed=1)
    seen = []
    optimizer.register_load_state_dict_pre_hook(lambda optimizer, state_dict: seen.append(state_dict.get("total")))
    load(optimizer, {**source.state_dict(), "total": 7}, tmp_path / "optim.bin")
    assert seen == [7]
    assert differences(source.state_dict(), optimizer.state_dict()) == []


class HalfPrecision:
    """What wraps an optimizer without being one."""

    def __init__(self, optimizer, scale):
        self.optimizer, self.scale = optimizer, scale

    def state_dict(self):
        return {"optimizer": self.optimizer.state_dict(), "scale": self.scale}

    def load_state_dict(self, state_dict):
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.scale = state_dict["scale"]


def test_an_object_that_is_no_optimizer(tmp_path):
    source, wrapped = HalfPrecision(trained(), 8.0), HalfPrecision(trained(seed=1), 1.0)
    load(wrapped, source.state_dict(), tmp_path / "optim.bin")
    assert differences(source.state_dict(), wrapped.state_dict()) == []


class Reshapes(torch.optim.Adam):
    """Saves its moments flat, in native form otherwise."""

    def state_dict(self):
        saved = super().state_dict()
        moments = {key: {**state, "exp_avg": state["exp_avg"].flatten()} for key, state in saved["state"].items()}
        return {**saved, "state": moments}

    def load_state_dict(self, state_dict):
        state = {
            key: {**state, "exp_avg": state["exp_avg"].reshape(4, 3)} for key, state in state_dict["state"].items()
        }
        super().load_state_dict({**state_dict, "state": state})


def test_moments_in_a_shape_of_the_optimizers_own(tmp_path):
    source, optimizer = trained(Reshapes), trained(Reshapes, seed=1)
    load(optimizer, source.state_dict(), tmp_path / "optim.bin")
    assert differences(source.state_dict(), optimizer.state_dict()) == []


class LeavesOut(torch.optim.Optimizer):
    """Keeps an option that its state dict leaves out, and a post-hook puts back."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "_engine": object})
        self.register_load_state_dict_post_hook(self._put_back)

    @staticmethod
    def _put_back(optimizer):
        for group in optimizer.param_groups:
            group["_engine"] = object

    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["seen"] = torch.tensor(1.0)

    def state_dict(self):
        saved = super().state_dict()
        groups = [{key: value for key, value in group.items() if key != "_engine"} for group in saved["param_groups"]]
        return {**saved, "param_groups": groups}


def test_an_option_that_the_optimizer_does_not_save_is_not_asked_for(tmp_path):
    source, optimizer = trained(LeavesOut, lr=0.5), trained(LeavesOut, seed=1)
    load(optimizer, source.state_dict(), tmp_path / "optim.bin")
    assert optimizer.param_groups[0]["lr"] == 0.5 and optimizer.param_groups[0]["_engine"] is object
    assert differences(source.state_dict(), optimizer.state_dict()) == []


class WithThreshold(torch.optim.Adam):
    """An Adam with one more option, which it can do without."""

    def __init__(self, params, threshold=3.0, **options):
        super().__init__(params, **options)
        self.defaults["threshold"] = threshold
        for group in self.param_groups:
            group.setdefault("threshold", threshold)

    def step(self):
        assert self.param_groups[0].get("threshold", 3.0)
        super().step()


def test_an_option_that_a_subclass_adds_is_not_asked_for(tmp_path):
    source, optimizer = trained(lr=0.5), trained(WithThreshold, seed=1)
    native = trained(WithThreshold, seed=1)
    native.load_state_dict(copy.deepcopy(source.state_dict()))
    load(optimizer, source.state_dict(), tmp_path / "optim.bin")
    assert differences(native.state_dict(), optimizer.state_dict()) == []


def test_an_option_that_its_base_class_needs_is_asked_for(tmp_path):
    optimizer = trained(WithThreshold, seed=1)
    sgd = trained(torch.optim.SGD, momentum=0.9).state_dict()
    refused_unchanged(optimizer, lambda: load(optimizer, sgd, tmp_path / "optim.bin"), "betas")


# ======================================
# values (35, 36, 38, 39, 43, 45)
# ======================================


@pytest.mark.parametrize("sharded", [True, False])
def test_a_numpy_array_as_hyperparameter(tmp_path, sharded):
    source, optimizer = trained(), trained(seed=1)
    saved = source.state_dict()
    saved["param_groups"][0]["betas"] = numpy.array([0.9, 0.99])
    if sharded:
        GeneralCheckpointIO().load_optimizer(optimizer, str(write_shards(saved, tmp_path / "ckpt", [[0, 1, 2]])))
    else:
        load(optimizer, saved, tmp_path / "optim.bin")
    found = optimizer.param_groups[0]["betas"]
    assert isinstance(found, numpy.ndarray) and found.tolist() == [0.9, 0.99]


class Quantile:
    """A class of the user's own that holds a tensor."""

    def __init__(self, table):
        self.table = table


needs_safe_globals = pytest.mark.skipif(
    not hasattr(torch.serialization, "safe_globals"), reason="this torch knows no list of safe globals"
)


@needs_safe_globals
@pytest.mark.parametrize("sharded", [True, False])
def test_an_allowed_class_that_holds_a_tensor_keeps_it(tmp_path, sharded):
    source, optimizer = trained(), trained(seed=1)
    saved = source.state_dict()
    saved["state"][0]["table"] = Quantile(torch.arange(1000.0))
    path = tmp_path / "optim.bin"
    if sharded:
        directory = write_shards(saved, tmp_path / "ckpt", [[0, 1, 2]])
        path = directory / "pytorch_optim-00000.bin"
    else:
        torch.save(saved, path)
    with torch.serialization.safe_globals([Quantile]):
        GeneralCheckpointIO().load_optimizer(optimizer, str(directory if sharded else path))
    path.write_bytes(b"\xff" * path.stat().st_size)
    first = optimizer.param_groups[0]["params"][0]
    assert torch.equal(optimizer.state[first]["table"].table, torch.arange(1000.0))


def meta():
    return torch.empty(4, 3, device="meta")


def quantised():
    return torch.quantize_per_tensor(torch.ones(4, 3), 0.1, 0, torch.qint8)


@pytest.mark.parametrize("make", [meta, quantised])
@pytest.mark.parametrize("nested", [False, True])
def test_tensors_that_cannot_be_copied_are_refused(tmp_path, make, nested):
    optimizer = trained(seed=1)
    saved = trained().state_dict()
    saved["state"][1]["exp_avg" if not nested else "history"] = make() if not nested else [torch.ones(1), make()]
    refused_unchanged(optimizer, lambda: load(optimizer, saved, tmp_path / "optim.bin"), "parameter id 1")


@pytest.mark.parametrize("ids", [[140234866, 9223372036854775807, 2**70], [-3, -2, -1]])
@pytest.mark.parametrize("sharded", [True, False])
def test_ids_of_any_integer(tmp_path, ids, sharded):
    source, optimizer = trained(), trained(seed=1)
    expected = copy.deepcopy(source.state_dict())
    saved = source.state_dict()
    saved["state"] = {new: saved["state"][old] for old, new in enumerate(ids)}
    saved["param_groups"][0]["params"] = list(ids)
    if sharded:
        directory = write_shards(saved, tmp_path / "ckpt", [ids[:1], ids[1:]])
        GeneralCheckpointIO().load_optimizer(optimizer, str(directory))
    else:
        load(optimizer, saved, tmp_path / "optim.bin")
    assert differences(expected, optimizer.state_dict()) == []


@pytest.mark.parametrize("value", ["text", 5, [1.0], {"a": torch.ones(2)}])
def test_what_should_be_a_tensor_and_is_none(tmp_path, value):
    optimizer = trained(seed=1)
    saved = trained().state_dict()
    saved["state"][1]["exp_avg"] = value
    refused_unchanged(optimizer, lambda: load(optimizer, saved, tmp_path / "optim.bin"), "parameter id 1", "'exp_avg'")


class Mode(enum.Enum):
    """A choice of the user's own."""

    FAST = 1


PLAIN_OPTIONS = [pathlib.PurePosixPath("a/b"), argparse.Namespace(rate=0.5), fractions.Fraction(1, 3)]


@pytest.mark.parametrize("option", PLAIN_OPTIONS, ids=lambda option: type(option).__name__)
@pytest.mark.parametrize("sharded", [True, False])
def test_options_of_the_standard_library(tmp_path, option, sharded):
    source, optimizer = trained(), trained(seed=1)
    saved = source.state_dict()
    saved["param_groups"][0]["extra"] = option
    if sharded:
        GeneralCheckpointIO().load_optimizer(optimizer, str(write_shards(saved, tmp_path / "ckpt", [[0, 1, 2]])))
    else:
        load(optimizer, saved, tmp_path / "optim.bin")
    assert optimizer.param_groups[0]["extra"] == option


@needs_safe_globals
@pytest.mark.parametrize("option, kind", [(Mode.FAST, Mode), (Quantile(3), Quantile)], ids=["Mode", "Quantile"])
@pytest.mark.parametrize("sharded", [True, False])
def test_options_of_the_users_own_classes(tmp_path, option, kind, sharded):
    source, optimizer = trained(), trained(seed=1)
    saved = source.state_dict()
    saved["param_groups"][0]["extra"] = option
    path = tmp_path / "optim.bin"
    if sharded:
        path = write_shards(saved, tmp_path / "ckpt", [[0, 1, 2]])
    else:
        torch.save(saved, path)
    refused_unchanged(
        optimizer,
        lambda: GeneralCheckpointIO().load_optimizer(optimizer, str(path)),
        kind.__name__,
        "torch.serialization.add_safe_globals",
    )
    # An Enum member is made by calling getattr or the class, as its Python version does.
    with torch.serialization.safe_globals([kind, getattr]):
        GeneralCheckpointIO().load_optimizer(optimizer, str(path))
    assert type(optimizer.param_groups[0]["extra"]) is kind


# ======================================
# loaders of one's own, errors (41, 46, 48, 50)
# ======================================


def test_states_through_equal_maps_add_up():
    source, optimizer = trained(), trained(steps=0, seed=1)
    saved = source.state_dict()["state"]
    for param_id in (0, 2):
        id_map = dict(enumerate(optimizer.param_groups[0]["params"]))
        load_states_into_optimizer(optimizer, {param_id: saved[param_id]}, id_map)
    states = optimizer.state_dict()["state"]
    assert sorted(states) == [0, 2]
    assert differences([saved[0], saved[2]], [states[0], states[2]]) == []


def test_states_in_many_shards_cost_what_they_cost_in_one():
    """Counts what native code is handed: with every shard only the shard's own parameters."""
    handed = []

    class Watches(torch.optim.Adam):
        def __setstate__(self, state):
            super().__setstate__(state)
            if "state" in state:
                handed.append((len(state["state"]), sum(len(group["params"]) for group in state["param_groups"])))

    source, optimizer = trained(count=12), trained(Watches, count=12, seed=1)
    saved = source.state_dict()["state"]
    id_map = dict(enumerate(optimizer.param_groups[0]["params"]))
    del handed[:]
    for first in range(0, 12, 3):
        load_states_into_optimizer(optimizer, {key: saved[key] for key in range(first, first + 3)}, id_map)
    assert handed == [(3, 3)] * 4
    assert differences(source.state_dict()["state"], optimizer.state_dict()["state"]) == []
    assert [len(group["params"]) for group in optimizer.param_groups] == [12]


@pytest.mark.parametrize("what", ["missing shard", "missing groups", "empty directory", "nothing"])
def test_a_missing_file_is_still_caught_as_before(tmp_path, what):
    optimizer = trained(seed=1)
    directory = write_shards(trained().state_dict(), tmp_path / "ckpt", [[0, 1], [2]])
    if what == "missing shard":
        (directory / "pytorch_optim-00001.bin").unlink()
    elif what == "missing groups":
        (directory / "groups.bin").unlink()
    elif what == "empty directory":
        for path in directory.iterdir():
            path.unlink()
    else:
        directory = directory / "nothing"
    error = refused_unchanged(optimizer, lambda: GeneralCheckpointIO().load_optimizer(optimizer, str(directory)))
    assert isinstance(error, FileNotFoundError) and isinstance(error, ValueError) and isinstance(error, RuntimeError)


class Foreign(CheckpointIO):
    """A checkpoint IO class of somebody else, whose loader opens an index file."""

    def load_sharded_optimizer(self, optimizer, index_file_path, prefix, **options):
        assert os.path.isfile(index_file_path)

    load_unsharded_optimizer = load_sharded_model = load_unsharded_model = save_sharded_model = (
        save_lora_as_pretrained
    ) = save_sharded_optimizer = save_unsharded_model = save_unsharded_optimizer = None


def test_a_loader_of_somebody_else_is_handed_index_files_only(tmp_path):
    optimizer = trained()
    Foreign().load_optimizer(optimizer, str(write_shards(optimizer.state_dict(), tmp_path / "ckpt", [[0, 1, 2]])))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="index file"):
        Foreign().load_optimizer(optimizer, str(tmp_path / "empty"))


# ======================================
# two ranks (31, 37, 40)
# ======================================


class OnRanks:
    """Runs on two ranks."""

    def own_layout(self):
        """Load an optimizer's own layout under TorchDDP; then let one rank fail."""
        from colossalai.booster import Booster
        from colossalai.booster.plugin import TorchDDPPlugin

        with colossalai_fork.apply():
            model = torch.nn.Linear(3, 4)
            source, inner = trained(Lookahead, steps=3), Lookahead(model.parameters())
            booster = Booster(plugin=TorchDDPPlugin())
            source = Lookahead([torch.nn.Parameter(param.detach().clone()) for param in model.parameters()])
            for param in source.param_groups[0]["params"]:
                param.grad = torch.ones_like(param)
            source.step()
            model, optimizer, *_ = booster.boost(model, inner)
            path = os.path.join(self.directory, f"optim-{self.rank}.bin")
            torch.save(source.state_dict(), path)
            booster.load_optimizer(optimizer, path)
            assert inner.count == 1
            assert differences(source.state_dict(), inner.state_dict()) == []
            inner.fails = self.rank == 1
            source.step()
            torch.save(source.state_dict(), path)
            before = copy.deepcopy(list(inner.state.values()))
            with pytest.raises(CheckpointLoadError, match="rank 1.*broken on purpose"):
                booster.load_optimizer(optimizer, path)
            assert differences(before, list(inner.state.values())) == []

    def stale_entry(self):
        """Save with LowLevelZero where the torch optimizer has an entry of a parameter that boosting has replaced."""
        booster, source = self.with_zero(seed=0)
        expected = source.state_dict()
        source.optim.state[torch.nn.Parameter(torch.ones(2))] = {}
        for shard in (True, False):
            path = os.path.join(self.directory, f"ckpt-{shard}")
            booster.save_optimizer(source, path, shard=shard)
            torch.distributed.barrier()
            booster, optimizer = self.with_zero(seed=1)
            booster.load_optimizer(optimizer, path)
            assert differences(expected, optimizer.state_dict()) == []

    def a_number_on_one_rank(self):
        """Refuse to save what is one number on one rank and a slice on the other, on both."""
        booster, source = self.with_zero(seed=0)
        param = source.optim.param_groups[0]["params"][0]
        source.optim.state[param]["sparse"] = torch.zeros(()) if self.rank == 1 else torch.zeros_like(param)
        for shard in (True, False):
            with pytest.raises(ValueError, match="'sparse' of parameter id 0 .* one number on some ranks"):
                booster.save_optimizer(source, os.path.join(self.directory, f"ckpt-{shard}"), shard=shard)

    def with_zero(self, seed):
        from colossalai.booster import Booster
        from colossalai.booster.plugin import LowLevelZeroPlugin

        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 4)
        booster = Booster(plugin=LowLevelZeroPlugin(stage=1, precision="fp32"))
        model, optimizer, *_ = booster.boost(model, torch.optim.Adam(model.parameters()))
        booster.backward(model(torch.randn(2, 3)).square().sum(), optimizer)
        optimizer.step()
        return booster, optimizer

    own_layout.run_here = own_layout
    stale_entry.run_here = stale_entry
    a_number_on_one_rank.run_here = a_number_on_one_rank


@pytest.mark.parametrize("method", ["own_layout", "stale_entry", "a_number_on_one_rank"])
def test_on_two_ranks(tmp_path, method):
    pool = WorkerPool()
    try:
        outcome = pool.get(2, overlay=method != "own_layout").run(
            Call(__name__, __file__, "OnRanks", method, {}, str(tmp_path))
        )
    finally:
        pool.close()
    assert outcome.status is Status.HELD, outcome.describe()


def test_an_adam_subclass_without_a_layout_of_its_own_is_validated(tmp_path):
    optimizer = trained(Counts, seed=1)
    saved = trained(Counts).state_dict()
    saved["state"][1]["exp_avg"] = torch.ones(99)
    error = refused_unchanged(optimizer, lambda: load(optimizer, saved, tmp_path / "optim.bin"), "(99,)")
    assert isinstance(error, CheckpointMismatchError)
