"""The CPU stand-ins: every plugin trains with them, and nothing of them is left once they are taken out."""

import math

import pytest
import torch

from colossalai_fork.gate.cpu import stand_in
from colossalai_fork.gate.workers.outcomes import Status
from colossalai_fork.gate.workers.pool import WorkerPool
from colossalai_fork.gate.workers.worker import Call

LANGUAGE_MODEL = dict(
    vocab_size=128,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=32,
    attn_implementation="eager",
)


def plugins():
    """What to train with: plugin, arguments, optimizer, and the smallest number of processes."""
    hybrid = {"tp_size": 1, "pp_size": 1, "enable_flash_attention": False}
    for precision in ("fp32", "fp16", "bf16"):
        for stage in (1, 2):
            options = dict(stage=stage, precision=precision, initial_scale=8.0)
            yield f"ZeRO {stage} {precision}", "LowLevelZeroPlugin", options, "Adam", 1
    yield "ZeRO offload", "LowLevelZeroPlugin", dict(cpu_offload=True, precision="bf16"), "Adam", 1
    yield "DDP", "TorchDDPPlugin", {}, "Adam", 1
    yield "FSDP", "TorchFSDPPlugin", {}, "Adam", 1
    yield "hybrid fp32", "HybridParallelPlugin", dict(hybrid, precision="fp32"), "Adam", 1
    yield "hybrid ZeRO", "HybridParallelPlugin", dict(hybrid, zero_stage=1, precision="bf16"), "HybridAdam", 1
    yield "hybrid tensor", "HybridParallelPlugin", dict(hybrid, tp_size=2, precision="fp32"), "Adam", 2
    pipeline = dict(hybrid, pp_size=2, num_microbatches=2, precision="fp32")
    yield "hybrid pipeline", "HybridParallelPlugin", pipeline, "Adam", 2
    moe = dict(hybrid, zero_stage=1, precision="bf16")
    yield "MoE", "MoeHybridParallelPlugin", dict(moe, ep_size=1), "Adam", 1
    yield "MoE experts", "MoeHybridParallelPlugin", dict(moe, ep_size=2), "Adam", 2
    for offload in (0.0, 1.0):
        for sharded in (False, True):
            options = dict(precision="bf16", offload_optim_frac=offload, offload_param_frac=offload)
            if sharded:
                # One dictionary each: making the plugin takes entries out of them.
                options["chunk_config_dict"] = {size: dict(chunk_size=64, keep_gathered=False) for size in (1, 2)}
            yield f"Gemini {offload} {sharded}", "GeminiPlugin", options, "HybridAdam", 1


class Training:
    """Runs in the workers."""

    def trains(self, plugin, options, optimizer):
        """Train for two steps; the loss must be a number and must change."""
        import colossalai.booster.plugin
        from colossalai.booster import Booster

        torch.manual_seed(0)
        model, batch = self.model(plugin)
        if optimizer == "HybridAdam":
            from colossalai.nn.optimizer import HybridAdam as optimizer_class
        else:
            optimizer_class = torch.optim.Adam
        booster = Booster(plugin=getattr(colossalai.booster.plugin, plugin)(**options))
        model, optimizer, criterion, *_ = booster.boost(
            model, optimizer_class(model.parameters(), lr=0.01), lambda outputs, batch: outputs[0].float().mean()
        )
        losses = []
        for _ in range(3):
            if options.get("pp_size", 1) > 1:
                loss = booster.execute_pipeline(iter([batch]), model, criterion, optimizer, return_loss=True)["loss"]
            else:
                loss = model(**batch)[0] if isinstance(batch, dict) else model(batch)
                loss = loss.float().square().mean()
                booster.backward(loss, optimizer)
            optimizer.step()
            optimizer.zero_grad()
            # The first stages of a pipeline have no loss.
            losses.append(0.0 if loss is None else loss.item())
        has_loss = any(losses)
        assert all(math.isfinite(loss) for loss in losses)
        assert not has_loss or len(set(losses)) == 3, losses

    trains.run_here = trains

    def model(self, plugin):
        """A model that the plugin can train, and a batch for it."""
        if "Parallel" not in plugin:
            model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
            return model, torch.randn(4, 4)
        if "Moe" in plugin:
            from transformers import MixtralConfig as Config
            from transformers import MixtralForCausalLM as Model

            config = Config(**LANGUAGE_MODEL, num_local_experts=4, num_experts_per_tok=2)
        else:
            from transformers import LlamaConfig as Config
            from transformers import LlamaForCausalLM as Model

            config = Config(**LANGUAGE_MODEL)
        words = torch.randint(0, 128, (4, 8))
        return Model(config), {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words}


@pytest.fixture(scope="module")
def pool():
    """Worker processes of this module."""
    pool = WorkerPool()
    yield pool
    pool.close()


CASES = [
    pytest.param(plugin, options, optimizer, world_size, id=f"{name} on {world_size}")
    for name, plugin, options, optimizer, least in plugins()
    for world_size in (1, 2)
    if world_size >= least
]


@pytest.mark.parametrize("plugin, options, optimizer, world_size", CASES)
def test_plugin_trains(pool, tmp_path, plugin, options, optimizer, world_size):
    arguments = dict(plugin=plugin, options=options, optimizer=optimizer)
    call = Call(__name__, __file__, "Training", "trains", arguments, str(tmp_path))
    outcome = pool.get(world_size, overlay=False).run(call, deadline=60.0)
    assert outcome.status is Status.HELD, outcome.describe()


def snapshot():
    """Everything that a stand-in replaces."""
    from colossalai.accelerator.cpu_accelerator import CpuAccelerator
    from colossalai.checkpoint_io import utils
    from colossalai.kernel.kernel_loader import CPUAdamLoader
    from colossalai.pipeline import p2p
    from colossalai.zero.gemini import placement_policy
    from colossalai.zero.gemini.chunk import Chunk, manager
    from colossalai.zero.low_level.low_level_optim import LowLevelZeroOptimizer

    owners = (CpuAccelerator, utils, CPUAdamLoader, p2p, placement_policy, Chunk, manager, LowLevelZeroOptimizer)
    return [dict(vars(owner)) for owner in (*owners, torch.Tensor, torch.cuda)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is stood in for where CUDA is available")
def test_taken_out_without_a_trace():
    before = snapshot()
    with stand_in.stand_ins():
        assert snapshot() != before
        stand_in.install()
        with stand_in.without_stand_ins():
            assert snapshot() == before
        assert snapshot() != before
    assert snapshot() == before
