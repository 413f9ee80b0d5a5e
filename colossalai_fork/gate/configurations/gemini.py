"""How GeminiPlugin makes models and optimizers of a recipe, and which part of the saved state a rank holds."""

from __future__ import annotations

import dataclasses
import functools
import os
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..contract.base import case
from ..contract.cases.gemini import GeminiCases
from ..contract.comparison import differences, frozen, look_at, twin_of
from ..contract.subjects import Recipe, Subject, Weights
from .boosted import BoosterContract

if TYPE_CHECKING:
    from colossalai.booster.plugin import Plugin
    from colossalai.zero.gemini.chunk import Chunk

#: Elements of a chunk on one rank: so few that ranges begin and end within parameters, and that ranks lack some.
CHUNK = 8


@functools.lru_cache(maxsize=None)
def adam_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """The optimizers that cases of Gemini use: it takes ColossalAI's own Adam only, so the odd ones derive from that.

    Returns:
        Dict[str, type]: by the name that recipes use.
    """
    from colossalai.nn.optimizer import HybridAdam
    from colossalai.zero.gemini import gemini_optimizer

    class FailsWhileLoading(HybridAdam):
        fails = None

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            super().load_state_dict(state_dict)
            if self.fails is not None:
                raise self.fails

    class WatchesItsState(HybridAdam):
        def watch(self) -> None:
            self.still_alive = None
            self.watched = [weakref.ref(state["exp_avg"]) for state in self.state.values()]

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.still_alive = sum(reference() is not None for reference in self.watched)
            super().load_state_dict(state_dict)

    classes = {each.__name__: each for each in (HybridAdam, FailsWhileLoading, WatchesItsState)}
    gemini_optimizer._AVAIL_OPTIM_LIST.update(classes.values())
    return classes


@dataclasses.dataclass
class GeminiSubject(Subject):
    """A model whose parameters live in chunks. Its optimizer holds stand-ins, which are empty between steps."""

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks: those of the model's precision, each followed by that of the master parameters if there is one."""
        chunk16s = self.optimizer.chunk_manager.get_chunks(
            value for value in self.real_parameters.values() if value.requires_grad
        )
        return [chunk for each in chunk16s for chunk in (each, each.paired_chunk) if chunk is not None]

    @property
    def real_parameters(self) -> dict[int, torch.nn.Parameter]:
        """The model's parameters by id."""
        return self.optimizer.id_to_real_params

    def weights(self) -> dict[str, object]:
        # A parameter whose chunk is scattered is a view of memory that has been given back.
        return {
            "chunks": [chunk.payload.detach().clone() for chunk in self.chunks],
            "requires_grad": {name: value.requires_grad for name, value in self.model.named_parameters()},
            "stepped parameters": [parameter.detach().clone() for parameter in self.parameters],
        }

    def range_of(self, param_id: int) -> tuple[int, int]:
        """Which elements of a parameter this rank holds, told from where the parameter lies in its chunk.

        Args:
            param_id (int): the parameter.

        Returns:
            Tuple[int, int]: first element and the one behind the last, of the flattened parameter; equal for none.
        """
        if param_id in self.recipe.options.get("frozen", ()):
            return 0, 0
        chunk = self.optimizer.chunk_manager.get_chunk(self.real_parameters[param_id])
        place = chunk.tensors_info[self.real_parameters[param_id]]
        if chunk.keep_gathered:
            return 0, place.end - place.offset
        first = chunk.shard_size * torch.distributed.get_rank(chunk.torch_pg)
        start, stop = max(place.offset, first), min(place.end, first + chunk.shard_size)
        return start - place.offset, max(start, stop) - place.offset

    def holds(self, param_id: int) -> bool:
        """Whether this rank holds any element of a parameter.

        Args:
            param_id (int): the parameter.

        Returns:
            bool: whether it does.
        """
        start, stop = self.range_of(param_id)
        return start < stop


class GeminiContract(GeminiCases, BoosterContract):
    """GeminiCheckpointIO: parameters are laid into chunks, and a rank holds what falls into its slice of each.

    Attributes:
        gathered (bool): whether every rank keeps whole chunks, as Gemini has it for small models.
        master_weights (bool): whether float32 copies of the parameters are stepped.
        options (dict): more arguments of the plugin.
    """

    class_under_test = "GeminiCheckpointIO"
    cuts = True
    whole_tensors = False
    whole_optimizers = False
    linear_in_parameters = False
    whole_state_dict = {"only_rank_0": False}
    gathered = False
    master_weights = True
    options = {}
    crossing = False

    def recipe(self, **changes: Any) -> Recipe:
        return super().recipe(**{"optimizer": "HybridAdam", **changes})

    def plugin(self) -> Plugin:
        from colossalai.booster.plugin import GeminiPlugin

        return GeminiPlugin(
            precision="bf16", master_weights=self.master_weights, enable_async_reduce=False, **self.options
        )

    def build(self, seed: int = 1, recipe: Recipe | None = None) -> GeminiSubject:
        from colossalai.booster import Booster

        recipe = recipe or self.recipe()
        self.require(recipe.optimizer in adam_classes(), "Gemini takes no such optimizer")
        weights = Weights(recipe.shapes, seed, recipe.dtype)
        for number, value in enumerate(weights.parameters()):
            value.requires_grad_(number not in recipe.options.get("frozen", ()))
        parameters = [(f"weight_{number}", value) for number, value in enumerate(weights.parameters())]
        groups = [
            {"params": [parameters[each] if recipe.named else parameters[each][1] for each in ids], "lr": rate}
            for ids, rate in zip(recipe.groups, recipe.rates)
        ]
        optimizer = adam_classes()[recipe.optimizer](groups, lr=recipe.rates[0])
        plugin = self.shared_plugin()
        if not self.gathered:
            # Gemini takes this dictionary apart, so each model needs its own.
            ranks = plugin.zero_size
            plugin.gemini_config["chunk_config_dict"] = {
                ranks: {"chunk_size": CHUNK * ranks, "keep_gathered": False},
            }
        booster = Booster(plugin=plugin)
        model, optimizer, *_ = booster.boost(weights, optimizer)

        def train(seed: int, ids: tuple[int, ...] | None) -> None:
            every = ids is None or self.crossing
            self.require(every, "Gemini steps every parameter of a chunk, whether it took part or not")
            booster.backward(model(1000 * seed + self.rank), optimizer)
            optimizer.step()
            optimizer.zero_grad()

        shapes = dict(enumerate(recipe.shapes))
        self._subject = GeminiSubject(
            recipe, model, optimizer, optimizer.unwrap(), shapes, recipe.groups, train, plugin.get_checkpoint_io()
        )
        return self._subject

    def spoilt_id(self, param_id: int) -> int:
        held = [each for each in self._subject.shapes if self._subject.holds(each)]
        return param_id if param_id in held else held[0]

    def state_dtype(self, recipe: Recipe) -> torch.dtype:
        return torch.float32 if self.master_weights else torch.bfloat16

    def saved(
        self, recipe: Recipe | None = None, ids: tuple[int, ...] | None = None, seed: int = 11, steps: int = 3
    ) -> dict[str, Any]:
        recipe = recipe or self.recipe()
        if recipe.optimizer in adam_classes():
            recipe = dataclasses.replace(recipe, optimizer="HybridAdam")
        saved = super().saved(recipe, ids, seed, steps)
        for state in saved["state"].values():
            if "step" in state:
                # A Python number in memory, a tensor in the file.
                state["step"] = torch.tensor(float(state["step"]))
        return saved

    def trained(self, seed: int = 1, recipe: Recipe | None = None, steps: int = 2) -> GeminiSubject:
        subject = super().trained(seed, recipe, steps)
        if subject.recipe.options.get("amsgrad"):
            # ColossalAI's Adam has no such option, and keeps what it was loaded with.
            for state in subject.inner.state.values():
                state["max_exp_avg_sq"] = state["exp_avg_sq"].clone()
        return subject

    def local_state(self, subject: GeminiSubject, saved: dict[str, Any]) -> dict[str, Any]:
        numbers = iter(range(len(subject.shapes)))
        own_ids = [[next(numbers) for _ in ids] for ids in subject.groups]
        groups, state = [], {key: value for key, value in saved["state"].items() if not isinstance(key, int)}
        for ids, group in zip(own_ids, saved["param_groups"] or [{"params": ids} for ids in own_ids]):
            held = [(own, saved_id) for own, saved_id in zip(ids, group["params"]) if subject.holds(own)]
            groups.append({**group, "params": [saved_id for _, saved_id in held]})
            for own, saved_id in held:
                if saved["state"].get(saved_id):
                    start, stop = subject.range_of(own)
                    state[saved_id] = {
                        key: value if key == "step" else value.reshape(-1)[start:stop].clone()
                        for key, value in saved["state"][saved_id].items()
                    }
        return {"state": state, "param_groups": groups}

    def native_twin(self, subject: GeminiSubject, saved: dict[str, Any]) -> torch.optim.Optimizer:
        twin = twin_of(subject.inner)
        stand_ins = [parameter for group in twin.param_groups for parameter in group["params"]]
        for parameter in stand_ins:
            # Before the first step it does not have the dtype of what it stands for yet.
            parameter.data = torch.empty(0, dtype=self.state_dtype(subject.recipe), device=self.device)
        twin.load_state_dict(frozen(self.local_state(subject, saved)))
        # HybridAdam looks its state up as it loads, and so makes an entry for each parameter.
        for parameter in stand_ins:
            if not twin.state[parameter]:
                del twin.state[parameter]
        return twin

    def must_equal(self, subject: GeminiSubject, twin: torch.optim.Optimizer, step: bool = True) -> None:
        # Between steps the stand-ins are empty; for this one they get as many elements as this rank holds.
        lengths = {id(fake): subject.range_of(each) for each, fake in subject.optimizer.id_to_fake_params.items()}
        before = [parameter.data for parameter in subject.parameters]
        generator = torch.Generator().manual_seed(3)
        for mine, other in zip(subject.parameters, [each for group in twin.param_groups for each in group["params"]]):
            start, stop = lengths[id(mine)]
            values = torch.randn(stop - start, generator=generator)
            mine.data = values.to(device=self.device, dtype=self.state_dtype(subject.recipe))
            other.data = mine.data.clone()
        try:
            super().must_equal(subject, twin, step)
        finally:
            for parameter, data in zip(subject.parameters, before):
                parameter.grad, parameter.data = None, data

    def _goes_on_alike(
        self, source: GeminiSubject, subject: GeminiSubject, path: str, ids: tuple[int, ...] | None = None
    ) -> None:
        for mine, other in zip(subject.chunks, source.chunks):
            mine.payload.copy_(other.payload)
        for group, saved in zip(source.inner.param_groups, source.optimizer.get_param_groups_for_saving()):
            # Gemini saves options that torch's Adam has and its own has not.
            group.update({key: value for key, value in saved.items() if key != "params"})
        # Any loading sets this.
        source.inner.defaults.setdefault("differentiable", False)
        self.must_load(subject, path)
        self.verdict(differences(look_at(source.inner), look_at(subject.inner), ""))
        for each in (source, subject):
            each.train(77, ids)
        self.verdict(
            differences(source.weights(), subject.weights(), "after one more step, ")
            + differences(look_at(source.inner), look_at(subject.inner), "after one more step, ")
        )

    @case(1, rows=(25,))
    def save_for_another_configuration(self) -> None:
        # All parameters take part, and then some of them lose what they have.
        self.crossing = True
        given = self.build

        def build(*arguments: Any, **options: Any) -> GeminiSubject:
            subject = given(*arguments, **options)
            train = subject.train

            def train_and_forget(seed: int, ids: tuple[int, ...]) -> None:
                train(seed, ids)
                for each, stand_in in subject.optimizer.id_to_fake_params.items():
                    if each not in ids:
                        subject.inner.state.pop(stand_in, None)

            subject.train = train_and_forget
            return subject

        self.build = build
        BoosterContract.save_for_another_configuration.run_here(self)

    def not_held(self, source: GeminiSubject, saved: dict[str, Any]) -> list[str]:
        # Gemini saves options that torch's Adam has and its own has not.
        held, found = look_at(source.inner)["state"], look_at(self.native_twin(source, saved))["state"]
        return differences(held, found, "what was saved: ")

    @case(1, rows=(25,))
    def test_files_hold_whole_tensors(self) -> None:
        source = self.trained(1)
        path = self.save(source)
        held = {}
        for name in sorted(os.listdir(path)):
            if name.startswith("pytorch_optim-"):
                held.update(torch.load(os.path.join(path, name), weights_only=True))
        groups = torch.load(os.path.join(path, "pytorch_optim_group.bin"), weights_only=True)
        shapes = {number: tuple(state["exp_avg"].shape) for number, state in held.items()}
        twin = self.native_twin(source, {"state": held, "param_groups": groups})
        problems = differences(source.shapes, shapes, "saved shapes")
        # What torch's Adam has, for whoever loads the file into that.
        steps = {number: torch.tensor(2.0) for number in held}
        problems += differences(steps, {number: state["step"] for number, state in held.items()}, "saved steps")
        self.verdict(problems + differences(look_at(source.inner)["state"], look_at(twin)["state"], "saved state"))

    def _large(self, shards: int = 5, elements: int = 2**21) -> tuple[Recipe, int, int]:
        # Adam has two moments of each parameter, so there are half as many parameters.
        recipe, total, per_shard = super()._large(-(-shards // 2), elements)
        # What a rank may read is its share of this, and some ranks have the same share.
        total *= self.options.get("extra_dp_size", 1)
        return dataclasses.replace(recipe, optimizer="HybridAdam", options={}), 2 * total, 2 * per_shard
