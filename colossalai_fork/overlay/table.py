"""The table of replaced functions. Overlay, patch series, status and drift checks all read it; nothing is listed twice."""

from dataclasses import dataclass, field
from typing import Mapping


@dataclass(frozen=True)
class Replacement:
    """One upstream function and ours for it.

    Args:
        module (str): upstream's module.
        name (str): qualified name in that module.
        our_module (str): the module that holds our function.
        patch (str): which patch of the series carries it.
        our_name (str): its qualified name in our module; upstream's if not given.
        kind (str): ``replace``; ``add`` for what upstream lacks; ``inherit`` for a method of upstream's that makes way for the
            one its class inherits from ours.
        known (Mapping[str, str]): fingerprints of upstream's function by ColossalAI version; see ``fingerprint``.
    """

    module: str
    name: str
    our_module: str
    patch: str
    our_name: str = ""
    kind: str = "replace"
    known: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.our_name:
            object.__setattr__(self, "our_name", self.name)

    @property
    def symbol(self) -> str:
        """str: ``module:name``."""
        return f"{self.module}:{self.name}"

    @property
    def file(self) -> str:
        """str: upstream's file, from the root of its source tree."""
        return self.module.replace(".", "/") + ".py"


# To fill in ``known``: python -m colossalai_fork.overlay MODULE:NAME ...
REPLACEMENTS = [
    Replacement(
        "colossalai.checkpoint_io.checkpoint_io_base",
        "CheckpointIO.load_optimizer",
        "colossalai_fork.checkpoint_io.checkpoint_io_base",
        patch="replace-optimizer-state",
        known={"0.5.0": "fbf3d7098907 146fbfe9de72 0183183bf1d8 5122714a3c07"},
    ),
    Replacement(
        "colossalai.checkpoint_io.utils",
        "load_param_groups_into_optimizer",
        "colossalai_fork.checkpoint_io.utils",
        patch="replace-optimizer-state",
        known={
            "0.5.0": "2c92d71d5530 506bc9f45ee4 6e04165a36a0 0c7605490331 983a7654f73d cad40b51795a d410e45859c6 "
            "02a91f722342 993a3ffaae00 9d74ffb26678 3f57cddc28de 41ebe0a235e6 42e5bcdb442e",
            "0.5.0 + fix": "2c92d71d5530 506bc9f45ee4 6e04165a36a0 0c7605490331 983a7654f73d cad40b51795a d410e45859c6 "
            "02a91f722342 993a3ffaae00 9d74ffb26678 3f57cddc28de 340622667848 42e5bcdb442e",
        },
    ),
    Replacement(
        "colossalai.checkpoint_io.utils",
        "load_states_into_optimizer",
        "colossalai_fork.checkpoint_io.utils",
        patch="replace-optimizer-state",
        known={"0.5.0": "969994e26515 e97f5451910b c32ef922af20 aba7fbbf26a0 7286790668dc 3d8f7a8f83fa eef277fbee42"},
    ),
    Replacement(
        "colossalai.checkpoint_io.general_checkpoint_io",
        "GeneralCheckpointIO.optimizer_destination",
        "colossalai_fork.checkpoint_io.general_checkpoint_io",
        patch="replace-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.checkpoint_io.general_checkpoint_io",
        "GeneralCheckpointIO.load_sharded_optimizer",
        "colossalai_fork.checkpoint_io.general_checkpoint_io",
        patch="replace-optimizer-state",
        known={
            "0.5.0": "0f9796d89db3 033129a5858d ee9ab92d66a3 e34c79a1d034 b2452412a242 5b40f5b2608a c294f876cd5d "
            "922a4aa188b6",
            "0.5.0 + fix": "0f9796d89db3 033129a5858d ee9ab92d66a3 e34c79a1d034 7a5b936be875 b2452412a242 5b40f5b2608a "
            "c294f876cd5d 922a4aa188b6",
        },
    ),
    Replacement(
        "colossalai.checkpoint_io.general_checkpoint_io",
        "GeneralCheckpointIO.load_unsharded_optimizer",
        "colossalai_fork.checkpoint_io.general_checkpoint_io",
        patch="replace-optimizer-state",
        known={"0.5.0": "ff4b7b1bf9fb a37ef20cd83a 7470be26f755 c4ada706d004"},
    ),
    Replacement(
        "colossalai.booster.plugin.torch_ddp_plugin",
        "TorchDDPCheckpointIO.load_sharded_optimizer",
        "colossalai_fork.checkpoint_io.torch_ddp",
        patch="replace-torch-ddp-optimizer-state",
        kind="inherit",
        known={"0.5.0": "e34f98f690e1 422364744169 5e7e73942375"},
    ),
    Replacement(
        "colossalai.booster.plugin.torch_ddp_plugin",
        "TorchDDPCheckpointIO.load_unsharded_optimizer",
        "colossalai_fork.checkpoint_io.torch_ddp",
        patch="replace-torch-ddp-optimizer-state",
        kind="inherit",
        known={"0.5.0": "0d2f9fe2960e 422364744169 0eb6672e16e6"},
    ),
    Replacement(
        "colossalai.booster.plugin.torch_ddp_plugin",
        "TorchDDPCheckpointIO.optimizer_destination",
        "colossalai_fork.checkpoint_io.torch_ddp",
        patch="replace-torch-ddp-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.booster.plugin.low_level_zero_plugin",
        "LowLevelZeroCheckpointIO.optimizer_destination",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="replace-low-level-zero-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.booster.plugin.low_level_zero_plugin",
        "LowLevelZeroCheckpointIO.save_sharded_optimizer",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="replace-low-level-zero-optimizer-state",
        known={
            "0.5.0": "ddc5be3983b7 98359741e982 c806abc74371 3f1309b14919 c6c11e5b8614 057ad80330a1 b1caec848ed7 "
            "2a9d06c791aa 95ae711cfa01 6776f1dce714 9c9b69ce921f f011c6d91a96 f031e20697f9 a4b800caf735 "
            "19daa0dd5c52 f19e1e07dec7"
        },
    ),
    Replacement(
        "colossalai.booster.plugin.low_level_zero_plugin",
        "LowLevelZeroCheckpointIO.load_sharded_optimizer",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="replace-low-level-zero-optimizer-state",
        kind="inherit",
        known={
            "0.5.0": "9ea6df79c878 59f948e2163a 4b26dec9e2d4 033129a5858d ee9ab92d66a3 e34c79a1d034 b2452412a242 "
            "5b40f5b2608a b9d3e4769c6c 922a4aa188b6",
            "0.5.0 + fix": "9ea6df79c878 59f948e2163a 4b26dec9e2d4 033129a5858d ee9ab92d66a3 e34c79a1d034 7a5b936be875 "
            "b2452412a242 5b40f5b2608a b9d3e4769c6c 922a4aa188b6",
        },
    ),
    Replacement(
        "colossalai.booster.plugin.low_level_zero_plugin",
        "LowLevelZeroCheckpointIO.load_unsharded_optimizer",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="replace-low-level-zero-optimizer-state",
        kind="inherit",
        known={"0.5.0": "0d2f9fe2960e 34fc3a8062f2 358d5557eeb9 7470be26f755 c4ada706d004"},
    ),
    Replacement(
        "colossalai.zero.low_level.low_level_optim",
        "LowLevelZeroOptimizer.gather_state",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="replace-low-level-zero-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.zero.low_level.low_level_optim",
        "LowLevelZeroOptimizer.state_dict",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="replace-low-level-zero-optimizer-state",
        known={"0.5.0": "34ea67abecd0 b26ba426be87 4c21d6237931 6c23df233182 bdc79ee47b3b 3b80d693fcb6"},
    ),
    Replacement(
        "colossalai.zero.low_level.low_level_optim",
        "LowLevelZeroOptimizer.state_dict_shard",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="replace-low-level-zero-optimizer-state",
        known={
            "0.5.0": "019b85073dae 18d3457c131c 2f01c96a823c 4c21d6237931 997e64b2f48d f9b30e19688e b28e74363b6c "
            "d51003a4b73b e394b4622fe4 d8e6af42b36c",
            "0.5.0 + fix": "019b85073dae 18d3457c131c 2f01c96a823c 4c21d6237931 997e64b2f48d f9b30e19688e b28e74363b6c "
            "d51003a4b73b e9acf4149970 d8e6af42b36c",
        },
    ),
    Replacement(
        "colossalai.zero.low_level.low_level_optim",
        "LowLevelZeroOptimizer.load_state_dict",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="replace-low-level-zero-optimizer-state",
        known={"0.5.0": "b80b0efeb5c1 79e4c793bfa7 ad25ad147eab b28e74363b6c f8fd7a952c06 3c6df5266fd3 a87bcb8b2844"},
    ),
    Replacement(
        "colossalai.checkpoint_io.hybrid_parallel_checkpoint_io",
        "HybridParallelCheckpointIO.optimizer_destination",
        "colossalai_fork.checkpoint_io.hybrid_parallel",
        patch="replace-hybrid-parallel-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.checkpoint_io.hybrid_parallel_checkpoint_io",
        "HybridParallelCheckpointIO.load_sharded_optimizer",
        "colossalai_fork.checkpoint_io.hybrid_parallel",
        patch="replace-hybrid-parallel-optimizer-state",
        kind="inherit",
        known={
            "0.5.0": "d664ab081d97 422364744169 9ae42771634f 6229d222e943 91c4ed391378 9dc19119b782 4531e2e71660 "
            "b66f23295fe4 eeb4b32372ce fd84df7d15e5 ee9ab92d66a3 a608a451f31d 4965246bd969 86e025ebd7a7 "
            "d72b79ebb084 75fcb8942cf7 a8d591fc5788 f2c182995fe6 1ddb86ccb547 db9047b6f781",
            "0.5.0 + fix": "d664ab081d97 422364744169 9ae42771634f 6229d222e943 91c4ed391378 9dc19119b782 4531e2e71660 "
            "b66f23295fe4 eeb4b32372ce fd84df7d15e5 ee9ab92d66a3 a608a451f31d 5c719634475f c06797c6c727 "
            "a8d591fc5788 f2c182995fe6 1ddb86ccb547 db9047b6f781",
        },
    ),
    Replacement(
        "colossalai.checkpoint_io.hybrid_parallel_checkpoint_io",
        "HybridParallelCheckpointIO.load_unsharded_optimizer",
        "colossalai_fork.checkpoint_io.hybrid_parallel",
        patch="replace-hybrid-parallel-optimizer-state",
        kind="inherit",
        known={
            "0.5.0": "0d2f9fe2960e 9ae42771634f 05bade1ac1d0 422364744169 b780e5f3348d 6a48a71e5937 86e025ebd7a7 "
            "ef4bd9734d16 d72b79ebb084 75fcb8942cf7 91c4ed391378 6229d222e943 9dc19119b782 b85c26684b64 "
            "1ddb86ccb547",
            "0.5.0 + fix": "0d2f9fe2960e 9ae42771634f 05bade1ac1d0 422364744169 b780e5f3348d 6a48a71e5937 936ddf1fa6ca "
            "91c4ed391378 6229d222e943 9dc19119b782 b85c26684b64 1ddb86ccb547",
        },
    ),
    Replacement(
        "colossalai.checkpoint_io.hybrid_parallel_checkpoint_io",
        "HybridParallelCheckpointIO.gather_from_sharded_optimizer_state",
        "colossalai_fork.checkpoint_io.hybrid_parallel",
        patch="replace-hybrid-parallel-optimizer-state",
        known={"0.5.0": "659f33d04116 3ffa7e2cd8ee 5f170ea245d8 e85f1f963bb4 8584feaf6ba6 4c07b3311d8f 129671ca4ec9"},
    ),
    Replacement(
        "colossalai.checkpoint_io.moe_checkpoint",
        "MoECheckpointIO.optimizer_destination",
        "colossalai_fork.checkpoint_io.moe",
        patch="replace-moe-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.checkpoint_io.moe_checkpoint",
        "MoECheckpointIO.load_sharded_optimizer",
        "colossalai_fork.checkpoint_io.moe",
        patch="replace-moe-optimizer-state",
        kind="inherit",
        known={
            "0.5.0": "d664ab081d97 422364744169 9ae42771634f 6229d222e943 91c4ed391378 9dc19119b782 4531e2e71660 "
            "b66f23295fe4 eeb4b32372ce fd84df7d15e5 ee9ab92d66a3 a608a451f31d 4965246bd969 86e025ebd7a7 "
            "d72b79ebb084 077c67a2788e 75fcb8942cf7 a8d591fc5788 3e8ea6175851 e7fe9cc0bd14 1ddb86ccb547 "
            "db9047b6f781",
            "0.5.0 + fix": "d664ab081d97 422364744169 9ae42771634f 6229d222e943 91c4ed391378 9dc19119b782 4531e2e71660 "
            "b66f23295fe4 eeb4b32372ce fd84df7d15e5 ee9ab92d66a3 a608a451f31d 5c719634475f c06797c6c727 "
            "a8d591fc5788 3e8ea6175851 e7fe9cc0bd14 1ddb86ccb547 db9047b6f781",
        },
    ),
    Replacement(
        "colossalai.checkpoint_io.moe_checkpoint",
        "MoECheckpointIO.load_unsharded_optimizer",
        "colossalai_fork.checkpoint_io.moe",
        patch="replace-moe-optimizer-state",
        kind="inherit",
        known={
            "0.5.0": "61e162474875 4345714f5d67 05bade1ac1d0 422364744169 db7fa9fd1e1c 86e025ebd7a7 ef4bd9734d16 "
            "d72b79ebb084 556d164fe41a 75fcb8942cf7 91c4ed391378 6229d222e943 007effdf0eed d22d1bbeb654 "
            "18009ae48524 1ddb86ccb547 d9b0de88e1cf",
            "0.5.0 + fix": "61e162474875 4345714f5d67 05bade1ac1d0 422364744169 db7fa9fd1e1c 936ddf1fa6ca 91c4ed391378 "
            "6229d222e943 007effdf0eed d22d1bbeb654 3a3c450f631c 1ddb86ccb547 d9b0de88e1cf",
        },
    ),
    Replacement(
        "colossalai.checkpoint_io.moe_checkpoint",
        "MoECheckpointIO.gather_from_sharded_optimizer_state",
        "colossalai_fork.checkpoint_io.moe",
        patch="replace-moe-optimizer-state",
        known={
            "0.5.0": "3e8cc84b5d44 79e0709dc809 5f170ea245d8 de834162d480 e85f1f963bb4 8584feaf6ba6 4f6f2bec60fa "
            "129671ca4ec9",
            "0.5.0 + fix": "3e8cc84b5d44 79e0709dc809 5f170ea245d8 de834162d480 e85f1f963bb4 8584feaf6ba6 3808c54d24a8 "
            "129671ca4ec9",
        },
    ),
    Replacement(
        "colossalai.checkpoint_io.moe_checkpoint",
        "MoECheckpointIO.save_unsharded_optimizer",
        "colossalai_fork.checkpoint_io.moe",
        patch="replace-moe-optimizer-state",
        known={
            "0.5.0": "4edc3c2880a2 05bade1ac1d0 8c7e02b871b0 e1849ced8983 bb238365e957 e021d6a05941 d9b0de88e1cf",
            "0.5.0 + fix": "4edc3c2880a2 05bade1ac1d0 8c7e02b871b0 e1849ced8983 bc91fd9d3f1f f6cd21c1083c 458a0cbc5eb6 "
            "ea473bf41873 d9b0de88e1cf",
        },
    ),
    Replacement(
        "colossalai.booster.plugin.gemini_plugin",
        "GeminiCheckpointIO.optimizer_destination",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.booster.plugin.gemini_plugin",
        "GeminiCheckpointIO.load_sharded_optimizer",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        kind="inherit",
        known={
            "0.5.0": "6eaf2e686f18 4b4642172644 3b9d93f50670 001f7353162b 4531e2e71660 ee9ab92d66a3 a608a451f31d "
            "b5b977c26fa5 10da77b41c9f 5b40f5b2608a 37b94ee88069 d774f9d4a355",
            "0.5.0 + fix": "6eaf2e686f18 4b4642172644 3b9d93f50670 001f7353162b 4531e2e71660 ee9ab92d66a3 a608a451f31d "
            "7a5b936be875 02d57010986f 10da77b41c9f 5b40f5b2608a 37b94ee88069 d774f9d4a355",
        },
    ),
    Replacement(
        "colossalai.booster.plugin.gemini_plugin",
        "GeminiCheckpointIO.load_unsharded_optimizer",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        kind="inherit",
        known={"0.5.0": "b2a130e1de8e 4b4642172644 0eb6672e16e6"},
    ),
    Replacement(
        "colossalai.zero.gemini.gemini_optimizer",
        "GeminiOptimizer.gather_parts",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.zero.gemini.gemini_optimizer",
        "GeminiOptimizer.whole_tensor",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.zero.gemini.gemini_optimizer",
        "GeminiOptimizer.collect_states",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        known={
            "0.5.0": "b11dc959f961 2b8451ad1c88 ebf3857e994e ef27769d6fa6 ec3c0703dead d6402d87a9e5 b8921908f827 "
            "ba584745d7c0 5dc16e598a97 6d2b15694322 9ec784c4fd88 d9b0de88e1cf 762ae37beb07 840de365c71a "
            "71a36f8ee493 3683f171e819 05fdf50d8cbb a034ec066bef 4e3f1402b523 6ce28afb5d0d 5d85e8f3ce0c "
            "9bda2ac668cb 6d89589b2db8 24c73a4f255c ea7ee196dd3a db6e77e4da6f 38ea24f291f0 76f30f2185ef "
            "d9b0de88e1cf cf2cba511f39 42ef21605027 7b1724851fc3 a7332675cd88"
        },
    ),
    Replacement(
        "colossalai.zero.gemini.gemini_optimizer",
        "GeminiOptimizer.state_dict",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        known={"0.5.0": "06cbd48bc9b4 500e3a5507c7 808ae4b2f71b 8f50938dca55 fc03344c90bc 793941d4d285"},
    ),
    Replacement(
        "colossalai.zero.gemini.gemini_optimizer",
        "GeminiOptimizer.state_shard",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        known={"0.5.0": "029044d1eca0 630072f3813e 5152bd8f3670 30a4d9460b97"},
    ),
    Replacement(
        "colossalai.zero.gemini.gemini_optimizer",
        "GeminiOptimizer.load_state_dict",
        "colossalai_fork.checkpoint_io.gemini",
        patch="replace-gemini-optimizer-state",
        known={"0.5.0": "6177108400b8 581911f8788c 3ace55a9457a ff6c2019cb2d 03afdc13f6ec c2ae783d0d13"},
    ),
    Replacement(
        "colossalai.booster.plugin.torch_fsdp_plugin",
        "TorchFSDPCheckpointIO.optimizer_destination",
        "colossalai_fork.checkpoint_io.torch_fsdp",
        patch="replace-torch-fsdp-optimizer-state",
        kind="add",
    ),
    Replacement(
        "colossalai.booster.plugin.torch_fsdp_plugin",
        "TorchFSDPCheckpointIO.load_sharded_optimizer",
        "colossalai_fork.checkpoint_io.torch_fsdp",
        patch="replace-torch-fsdp-optimizer-state",
        kind="inherit",
        known={
            "0.5.0": "a72f5b63782c 382ea69f278b 033129a5858d ee9ab92d66a3 0cdf72d4900d b5b977c26fa5 c9f393dc6dcb "
            "5b40f5b2608a 4abd140c367e 7ea889c38e21 3e239982e90a be1ad09752cc 2fbcd30b4720 c7f687f5bb2e "
            "3a164253ba79 12b8bf6ac3bd caa4171ac9fc 734af510e781 6bf1606e1c81 1026c7acb032 c27dcdd2bd1b"
        },
    ),
    Replacement(
        "colossalai.booster.plugin.torch_fsdp_plugin",
        "TorchFSDPCheckpointIO.load_unsharded_optimizer",
        "colossalai_fork.checkpoint_io.torch_fsdp",
        patch="replace-torch-fsdp-optimizer-state",
        kind="inherit",
        known={
            "0.5.0": "55daece7dbe9 c085db7d6183 60a447ef6a6b 3e239982e90a 5e19b647d160 2fbcd30b4720 c7f687f5bb2e "
            "3a164253ba79 12b8bf6ac3bd caa4171ac9fc 5cf51b378a64 00e333505cb9 0281072fd1df 0e4c00764db4 "
            "34b48eef89fe"
        },
    ),
    Replacement(
        "colossalai.checkpoint_io.checkpoint_io_base",
        "CheckpointIO.save_optimizer",
        "colossalai_fork.checkpoint_io.checkpoint_io_base",
        patch="save-optimizer-atomically",
        known={"0.5.0": "f00038ab74a1 6f3f700ba747"},
    ),
    Replacement(
        "colossalai.checkpoint_io.general_checkpoint_io",
        "GeneralCheckpointIO.optimizer_writers",
        "colossalai_fork.checkpoint_io.general_checkpoint_io",
        patch="save-optimizer-atomically",
        kind="add",
    ),
    Replacement(
        "colossalai.booster.plugin.torch_ddp_plugin",
        "TorchDDPCheckpointIO.optimizer_writers",
        "colossalai_fork.checkpoint_io.torch_ddp",
        patch="save-optimizer-atomically",
        kind="add",
    ),
    Replacement(
        "colossalai.booster.plugin.low_level_zero_plugin",
        "LowLevelZeroCheckpointIO.optimizer_writers",
        "colossalai_fork.checkpoint_io.low_level_zero",
        patch="save-optimizer-atomically",
        kind="add",
    ),
    Replacement(
        "colossalai.checkpoint_io.hybrid_parallel_checkpoint_io",
        "HybridParallelCheckpointIO.optimizer_writers",
        "colossalai_fork.checkpoint_io.hybrid_parallel",
        patch="save-optimizer-atomically",
        kind="add",
    ),
    Replacement(
        "colossalai.checkpoint_io.moe_checkpoint",
        "MoECheckpointIO.optimizer_writers",
        "colossalai_fork.checkpoint_io.moe",
        patch="save-optimizer-atomically",
        kind="add",
    ),
    Replacement(
        "colossalai.booster.plugin.gemini_plugin",
        "GeminiCheckpointIO.optimizer_writers",
        "colossalai_fork.checkpoint_io.gemini",
        patch="save-optimizer-atomically",
        kind="add",
    ),
    Replacement(
        "colossalai.booster.plugin.torch_fsdp_plugin",
        "TorchFSDPCheckpointIO.optimizer_writers",
        "colossalai_fork.checkpoint_io.torch_fsdp",
        patch="save-optimizer-atomically",
        kind="add",
    ),
]
