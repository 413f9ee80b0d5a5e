"""Gemini under tensor parallelism, which only real models have."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed

from ..contract.base import ContractBase, case
from ..contract.cases.own_files import OwnFilesCases
from ..contract.cases.unmodified_files import UnmodifiedFilesCases
from ..contract.comparison import differences, look_at
from ..contract.subjects import Recipe
from ..cpu.replacements import Replacements
from .gemini import GeminiSubject

if TYPE_CHECKING:
    from colossalai.checkpoint_io import CheckpointIO
    from transformers import GPT2LMHeadModel, LlamaForCausalLM

#: Odd for two ranks, and padded to 128.
VOCABULARY = 100


def make_llama() -> LlamaForCausalLM:
    """Make a Llama.

    Returns:
        LlamaForCausalLM: the model.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, use_cache=False, **sizes, **heads))


def make_gpt2() -> GPT2LMHeadModel:
    """Make a GPT-2, whose query, key and value weights are one, cut in a way of its own.

    Returns:
        GPT2LMHeadModel: the model.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    still = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, use_cache=False, **sizes, **still))


MODELS = {"llama": make_llama, "gpt2": make_gpt2}


class TensorParallelGeminiCases(ContractBase):
    """What is cut in two by tensor parallelism and then laid into chunks.

    Attributes:
        chunk (int): elements of a chunk on one rank.
    """

    class_under_test = "GeminiCheckpointIO"
    distributed = True
    world_size = 2
    chunk = 64
    _plugins = []

    save = OwnFilesCases.save
    unmodified = UnmodifiedFilesCases.unmodified

    def checkpoint_io(self) -> CheckpointIO:
        from colossalai.booster.plugin.gemini_plugin import GeminiCheckpointIO

        return GeminiCheckpointIO()

    def make(self, name: str, seed: int, gathered: bool) -> GeminiSubject:
        """Make a model and its optimizer, and train them.

        Args:
            name (str): one of :data:`MODELS`.
            seed (int): seed of weights and data.
            gathered (bool): whether ranks keep whole chunks.

        Returns:
            GeminiSubject: the subject.
        """
        from colossalai.booster import Booster
        from colossalai.booster.plugin import GeminiPlugin
        from colossalai.nn.optimizer import HybridAdam

        torch.manual_seed(seed)
        model = MODELS[name]()
        shapes = {number: tuple(each.shape) for number, each in enumerate(model.parameters())}
        ranks = self.world_size // 2
        chunks = None if gathered else {ranks: {"chunk_size": self.chunk * ranks, "keep_gathered": False}}
        plugin = GeminiPlugin(precision="bf16", tp_size=2, chunk_config_dict=chunks, enable_async_reduce=False)
        # A plugin closes its process groups when it goes, while models still use them.
        self._plugins.append(plugin)
        booster = Booster(plugin=plugin)
        model, optimizer, *_ = booster.boost(model, HybridAdam(model.parameters(), lr=0.01))

        def train(seed: int, ids: tuple[int, ...] | None) -> None:
            torch.manual_seed(seed)
            words = torch.randint(0, VOCABULARY, (2, 8))
            loss = model(input_ids=words, attention_mask=torch.ones_like(words), labels=words).loss
            booster.backward(loss, optimizer)
            optimizer.step()
            optimizer.zero_grad()

        subject = GeminiSubject(Recipe(), model, optimizer, optimizer.unwrap(), shapes, (tuple(shapes),), train)
        for step in range(2):
            subject.train(10 * seed + step, None)
        return subject

    @pytest.mark.parametrize("layout_of_chunks", ["gathered", "sharded"])
    @case(1, rows=(25,))
    def test_tensor_parallel_state_is_saved_whole_and_cut_again(self, layout_of_chunks: str) -> None:
        gathered = layout_of_chunks == "gathered"
        source, subject = self.make("llama", 1, gathered), self.make("llama", 2, gathered)
        path = self.save(source, "own")
        whole = states_in(path)
        shapes = {number: tuple(state["exp_avg"].shape) for number, state in whole.items()}
        self.verdict(differences(source.shapes, shapes, "saved shapes"))
        del subject.inner.state[next(iter(subject.inner.state))]
        self._holds_the_same(source, subject, path)
        # Laid into other chunks and saved again, it is the same.
        other = self.make("llama", 3, not gathered)
        self.must_load(other, path)
        again = states_in(self.save(other, "again"))
        self.verdict(differences(whole, again, "saved again: "))

    @pytest.mark.parametrize("name", MODELS)
    @case(1, rows=(25,))
    def test_tensor_parallel_file_of_unmodified_colossalai(self, name: str) -> None:
        replaced = Replacements()
        if not torch.cuda.is_available():
            # ColossalAI's GPT-2 tells CUDA which device it is on.
            replaced.put(torch.cuda, "set_device", lambda device: None)
        try:
            source, subject = self.make(name, 1, True), self.make(name, 2, True)
            with self.unmodified():
                path = self.save(source, "of-unmodified")
            self.verdict(differences(states_in(path), states_in(self.save(source, "own")), "saved: "))
            self._holds_the_same(source, subject, path)
        finally:
            replaced.restore()

    @case(2, 3, rows=(8,))
    def test_padded_rows_are_refused(self) -> None:
        subject = self.make("llama", 1, True)
        path = self.save(subject, "own")
        name = next(
            each for each in sorted(glob.glob(f"{path}/pytorch_optim-*")) if 0 in torch.load(each, weights_only=True)
        )
        self.everyone(None)
        if self.rank == 0:
            content = torch.load(name, weights_only=True)
            content[0]["exp_avg"] = torch.zeros(128, 16)
            torch.save(content, name)
        self.everyone(None)
        before = look_at(subject.inner)
        error = self.load(subject, path)
        problems = [] if isinstance(error, ValueError) else [f"expected a ValueError, got {error!r}"]
        problems += [] if "(128, 16)" in str(error) else [f"the message does not name the shape: {error}"]
        self.verdict(problems + differences(before, look_at(subject.inner), "after the refusal, "))

    def _holds_the_same(self, source: GeminiSubject, subject: GeminiSubject, path: str) -> None:
        for mine, other in zip(subject.chunks, source.chunks):
            mine.payload.copy_(other.payload)
        self.must_load(subject, path)
        self.verdict(differences(look_at(source.inner)["state"], look_at(subject.inner)["state"], ""))
        for each in (source, subject):
            each.train(77, None)
        self.verdict(differences(source.weights(), subject.weights(), "after one more step, "))


def states_in(path: str) -> dict[int, dict[str, Any]]:
    """Read the states of a sharded checkpoint of torch files.

    Args:
        path (str): its directory.

    Returns:
        Dict[int, dict]: by id.
    """
    states = {}
    for name in sorted(glob.glob(os.path.join(path, "pytorch_optim-*"))):
        states.update(torch.load(name, weights_only=True))
    return states
