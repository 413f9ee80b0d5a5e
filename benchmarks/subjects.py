"""The models and optimizers that checkpoints are saved from and loaded into."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable

import torch

from .cases import Case

if TYPE_CHECKING:
    from colossalai.booster.plugin.plugin_base import Plugin


@dataclasses.dataclass
class Subject:
    """A model and its optimizer on this rank.

    Attributes:
        model (torch.nn.Module): the model.
        optimizer (object): what ``load_optimizer`` is given.
        inner (torch.optim.Optimizer): the torch optimizer that holds the state.
        io (object): has ColossalAI's ``save_optimizer`` and ``load_optimizer``.
        train (Callable[[], None]): takes one step; to be called on every rank.
    """

    model: torch.nn.Module
    optimizer: Any
    inner: torch.optim.Optimizer
    io: Any
    train: Callable[[], None]

    def forget(self) -> None:
        """Take the optimizer back to before its first step."""
        self.inner.state.clear()

    def tensor_sizes(self) -> list[int]:
        """Bytes of each tensor of the state that this rank holds.

        Returns:
            List[int]: the sizes.
        """
        states = self.inner.state.values()
        return [value.nbytes for state in states for value in state.values() if isinstance(value, torch.Tensor)]


def make(case: Case, device: str) -> Subject:
    """Make the subject of a case on this rank.

    Args:
        case (Case): the case.
        device (str): "cpu" or "cuda".

    Returns:
        Subject: the subject, before its first step.
    """
    torch.manual_seed(0)
    return CONFIGURATIONS[case.configuration](case, device)


def _general(case: Case, device: str) -> Subject:
    from colossalai.checkpoint_io import GeneralCheckpointIO

    model = torch.nn.Module()
    elements = max(1, round(case.megabytes * 1e6 / 8 / case.parameters))
    for number in range(case.parameters):
        model.register_parameter(f"weight_{number}", torch.nn.Parameter(torch.zeros(elements, device=device)))
    optimizer = torch.optim.Adam(model.parameters())

    def train() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        optimizer.zero_grad()

    return Subject(model, optimizer, optimizer, GeneralCheckpointIO(), train)


def _boosted(
    plugin: Plugin,
    model: torch.nn.Module,
    batch: torch.Tensor | dict[str, torch.Tensor],
    optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
) -> Subject:
    from colossalai.booster import Booster

    booster = Booster(plugin=plugin)
    model, optimizer, *_ = booster.boost(model, optimizer_class(model.parameters()))

    def train() -> None:
        output = model(**batch) if isinstance(batch, dict) else model(batch)
        booster.backward(output.loss if hasattr(output, "loss") else output.float().square().mean(), optimizer)
        optimizer.step()
        optimizer.zero_grad()

    return Subject(model, optimizer, optimizer.unwrap(), booster, train)


def _layers(case: Case) -> tuple[torch.nn.Module, torch.Tensor]:
    # Two moments in float32 for each weight.
    count = max(1, round(case.megabytes * 1e6 / 8 / (case.width * case.width + case.width)))
    model = torch.nn.Sequential(*(torch.nn.Linear(case.width, case.width) for _ in range(count)))
    return model, torch.ones(2, case.width)


def _llama(case: Case) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    width, vocabulary = case.width, 8 * case.width
    per_layer = 12 * width * width
    count = max(1, round((case.megabytes * 1e6 / 8 - 2 * width * vocabulary) / per_layer))
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=width * 8 // 3 // 8 * 8,
        num_hidden_layers=count,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=vocabulary,
        max_position_embeddings=16,
        pad_token_id=0,
        use_cache=False,
        attn_implementation="eager",
    )
    words = torch.arange(1, 9).reshape(1, 8)
    return LlamaForCausalLM(config), {"input_ids": words, "labels": words, "attention_mask": torch.ones_like(words)}


def _zero(case: Case, device: str) -> Subject:
    from colossalai.booster.plugin import LowLevelZeroPlugin

    return _boosted(LowLevelZeroPlugin(stage=1, precision="fp32"), *_layers(case))


def _fsdp(case: Case, device: str) -> Subject:
    from colossalai.booster.plugin import TorchFSDPPlugin
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return _boosted(TorchFSDPPlugin(auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear})), *_layers(case))


def _hybrid(case: Case, **options: Any) -> Subject:
    from colossalai.booster.plugin import HybridParallelPlugin

    return _boosted(HybridParallelPlugin(pp_size=1, **options), *_llama(case))


def _hybrid_tensor(case: Case, device: str) -> Subject:
    return _hybrid(case, tp_size=case.processes, zero_stage=0, precision="fp32")


def _hybrid_zero(case: Case, device: str) -> Subject:
    return _hybrid(case, tp_size=1, zero_stage=1, precision="bf16", initial_scale=1)


def _gemini(case: Case, device: str) -> Subject:
    from colossalai.booster.plugin import GeminiPlugin
    from colossalai.nn.optimizer import HybridAdam

    # Chunks of about a million elements; in one of the default size every rank would keep all of so small a model.
    plugin = GeminiPlugin(
        precision="bf16",
        initial_scale=1,
        enable_async_reduce=False,
        min_chunk_size_m=min(1.0, case.megabytes / 320),
        search_range_m=2,
        hidden_dim=case.width,
    )
    return _boosted(plugin, *_llama(case), HybridAdam)


#: How each configuration makes its subject.
CONFIGURATIONS = {
    "general": _general,
    "zero": _zero,
    "hybrid-tensor": _hybrid_tensor,
    "hybrid-zero": _hybrid_zero,
    "gemini": _gemini,
    "fsdp": _fsdp,
}
