"""A small Llama and a small Mixtral under the plugins, in the place of loose weights."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

import torch

from ..contract.base import case
from ..contract.parallel_weights import padded
from ..contract.subjects import Recipe, Shape
from .hybrid_parallel import HybridParallelContract
from .moe import MoEContract

if TYPE_CHECKING:
    from colossalai.booster import Booster
    from colossalai.interface import OptimizerWrapper
    from transformers import LlamaForCausalLM, MixtralForCausalLM, PretrainedConfig

#: What tensor parallelism cuts along its rows, and along its columns.
ROWS = ("embed_tokens", "lm_head", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3", "gate")
COLUMNS = ("o_proj", "down_proj", "w2")
LAYERS = 2
EXPERTS = 4


def _configuration(cls: type[PretrainedConfig], **options: Any) -> PretrainedConfig:
    return cls(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16,
        use_cache=False,
        **options,
    )


def make_llama(vocabulary: int, tied: bool) -> LlamaForCausalLM:
    """Make a Llama.

    Args:
        vocabulary (int): size of its vocabulary.
        tied (bool): whether the output layer is the embedding.

    Returns:
        LlamaForCausalLM: the model.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(_configuration(LlamaConfig, vocab_size=vocabulary, tie_word_embeddings=tied))


def make_mixtral(vocabulary: int, tied: bool) -> MixtralForCausalLM:
    """Make a Mixtral.

    Args:
        vocabulary (int): size of its vocabulary.
        tied (bool): whether the output layer is the embedding.

    Returns:
        MixtralForCausalLM: the model.
    """
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"num_local_experts": EXPERTS, "num_experts_per_tok": 2}
    options = {"vocab_size": vocabulary, "tie_word_embeddings": tied, "attention_dropout": 0.0, **sizes}
    return MixtralForCausalLM(_configuration(MixtralConfig, **options))


@functools.lru_cache(maxsize=None)
def parameters_of(
    make: Callable[[int, bool], torch.nn.Module], vocabulary: int, tied: bool
) -> tuple[tuple[str, Shape], ...]:
    """Names and shapes of a model's parameters.

    Args:
        make (Callable): what makes the model.
        vocabulary (int): size of its vocabulary.
        tied (bool): whether the output layer is the embedding.

    Returns:
        Tuple[Tuple[str, Shape], ...]: by id.
    """
    with torch.device("meta"):
        model = make(vocabulary, tied)
    return tuple((name, tuple(parameter.shape)) for name, parameter in model.named_parameters())


#: What is worth the time of a whole model.
CASES = (
    "test_save_load_and_train_on",
    "test_saved_before_the_first_step",
    "test_parameter_without_saved_state_has_none",
    "test_empty_checkpoint_leaves_no_state",
    "test_full_checkpoint",
    "test_state_of_a_vector_one_element_too_long",
    "test_saved_by_unmodified_colossalai",
)


def only(*names: str) -> Callable[[type], type]:
    """Leave out all cases but some.

    Args:
        names (str): the cases that stay.

    Returns:
        Callable: the decorator of the configuration.
    """

    def decorate(cls: type) -> type:
        for name in dir(cls):
            if name.startswith("test_") and name not in names:
                setattr(cls, name, None)
        return cls

    return decorate


class RealModel:
    """Replaces the loose weights of a configuration by those of a transformer.

    Attributes:
        make (Callable): what makes the model.
        vocabulary (int): size of its vocabulary.
        tied (bool): whether the output layer is the embedding.
        pads_output (bool): whether the vocabulary of the output layer is padded like that of the embedding.
    """

    vocabulary = 128
    tied = False
    pads_output = True
    layouts = ("torch-sharded",)

    @property
    def parameters(self) -> tuple[tuple[str, Shape], ...]:
        """Names and shapes of the model's parameters, by id."""
        return parameters_of(type(self).make, self.vocabulary, self.tied)

    @property
    def pads_parts(self) -> bool:
        """Whether weights are padded before tensor parallelism cuts them."""
        return self.tensor_parallel > 1 and self.vocabulary % (64 * self.tensor_parallel) != 0

    def recipe(self, **changes: Any) -> Recipe:
        self.require(not {"shapes", "groups"} & set(changes), "the model's parameters are what they are")
        # ZeRO wants some of the first group on every pipeline stage.
        groups = (tuple(range(len(self.parameters))),)
        shapes = tuple(shape for _, shape in self.parameters)
        return super().recipe(**{"shapes": shapes, "groups": groups, "rates": (0.01,), **changes})

    def plugin_arguments(self) -> dict[str, Any]:
        return {**super().plugin_arguments(), "custom_policy": None}

    def make_model(self, recipe: Recipe, seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return type(self).make(self.vocabulary, self.tied)

    def go_through(
        self,
        booster: Booster,
        model: torch.nn.Module,
        optimizer: OptimizerWrapper,
        seed: int,
        ids: tuple[int, ...] | None,
    ) -> None:
        self.require(ids is None, "all parameters of the model take part")
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, self.vocabulary, (4, 6), generator=generator)
        batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens.clone()}
        model.train()
        if self.stages > 1:
            booster.execute_pipeline(iter([batch]), model, lambda outputs, inputs: outputs.loss, optimizer)
        else:
            booster.backward(model(**batch).loss, optimizer)

    # ------------------------------------------------------------------ this rank's place

    def stages_of(self, number: int) -> tuple[int, ...]:
        """The pipeline stages that hold a parameter.

        Args:
            number (int): its id.

        Returns:
            Tuple[int, ...]: the stages.
        """
        parts = self.parameters[number][0].split(".")
        if "layers" in parts:
            return (int(parts[parts.index("layers") + 1]) * self.stages // LAYERS,)
        if "embed_tokens" in parts:
            return (0, self.stages - 1) if self.tied else (0,)
        return (self.stages - 1,)

    def holds(self, number: int) -> bool:
        return torch.distributed.get_rank(self.shared_plugin().pp_group) in self.stages_of(number)

    def tensor_parallel_part(self, number: int, value: torch.Tensor, rank: int) -> torch.Tensor:
        module = self.parameters[number][0].split(".")[-2]
        size = self.tensor_parallel
        if self.pads_output and module == "lm_head" or module == "embed_tokens" and (self.tied or size > 1):
            # To a multiple of 64 on every rank.
            value = padded(value, 0, 64 * size)
        if module in ROWS:
            return value.chunk(size, 0)[rank].clone()
        return value.chunk(size, 1)[rank].clone() if module in COLUMNS else value


@only(*CASES)
class LlamaContract(RealModel, HybridParallelContract):
    """A Llama under HybridParallelPlugin."""

    make = staticmethod(make_llama)


@only(*CASES)
class MixtralContract(RealModel, MoEContract):
    """A Mixtral under MoeHybridParallelPlugin."""

    make = staticmethod(make_mixtral)
    pads_output = False

    def require_experts(self, recipe: Recipe) -> None:
        """Every rank has experts."""

    def expert_of(self, number: int) -> int | None:
        """The expert that a parameter belongs to.

        Args:
            number (int): its id.

        Returns:
            Optional[int]: the expert.
        """
        parts = self.parameters[number][0].split(".")
        return int(parts[parts.index("experts") + 1]) if "experts" in parts else None

    def holds(self, number: int) -> bool:
        expert = self.expert_of(number)
        rank = torch.distributed.get_rank(self.shared_plugin().ep_group)
        return super().holds(number) and (expert is None or expert * self.expert_parallel // EXPERTS == rank)

    def slicing_group(self, number: int) -> torch.distributed.ProcessGroup:
        plugin = self.shared_plugin()
        return plugin.dp_group if self.expert_of(number) is None else plugin.moe_dp_group


@only("test_full_checkpoint", "test_state_with_the_rows_that_pad_the_vocabulary")
class TiedMixtralContract(MixtralContract):
    """A Mixtral whose output layer is its embedding: the plugin pads the vocabulary, though nothing cuts it.

    ColossalAI cannot give the weights of such a model as a state dict, so there is no saving and going on here.
    """

    vocabulary = 100
    tied = True

    def go_through(
        self,
        booster: Booster,
        model: torch.nn.Module,
        optimizer: OptimizerWrapper,
        seed: int,
        ids: tuple[int, ...] | None,
    ) -> None:
        self.require(ids is None, "all parameters of the model take part")
        tokens = torch.randint(0, self.vocabulary, (4, 6), generator=torch.Generator().manual_seed(seed))
        model.train()
        # The model's own loss does not expect the padding, which takes no part here.
        scores = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits[..., : self.vocabulary]
        booster.backward(torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), tokens.flatten()), optimizer)

    @case(1, rows=(25,))
    def test_state_with_the_rows_that_pad_the_vocabulary(self, layout: str) -> None:
        subject = self.trained()
        saved = self.saved()
        files = self.files(saved, layout)
        for key in ("exp_avg", "exp_avg_sq"):
            rows = saved["state"][0][key]
            # The plugin saves what it has, and whatever is in these rows belongs to nothing.
            files.states[0][key] = torch.cat([rows, torch.ones(128 - self.vocabulary, rows.shape[1])])
        self.must_replace(subject, saved, self.write(files))
