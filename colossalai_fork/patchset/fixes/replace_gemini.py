"""Gemini: entries and the keys in them are replaced, and the groups must be those of the optimizer."""

from ..text.places import AFTER, BEFORE, INSTEAD, Change, Edit, assigns, calls

CHANGES = [
    Change(
        "colossalai/zero/gemini/gemini_optimizer.py",
        [
            Edit(
                "GeminiOptimizer.load_param_groups",
                BEFORE,
                calls("deepcopy"),
                """
                if not isinstance(saved_param_groups, list):
                    raise ValueError(f"The saved groups are a {type(saved_param_groups).__name__}, not a list")
                saved_ids = [group["params"] for group in saved_param_groups]
                own_ids = [group["params"] for group in self.param_groups_backup]
                if saved_ids != own_ids:
                    raise ValueError(f"The checkpoint has groups of the parameters {saved_ids}, the optimizer {own_ids}")
                for group in saved_param_groups:
                    missing = {"lr", "betas", "eps", "weight_decay"} - set(group)
                    if missing:
                        raise ValueError(f"The checkpoint is not of an Adam: a group lacks {sorted(missing)}")
                """,
                what="the backup of the groups",
            ),
            Edit(
                "GeminiOptimizer.load_param_groups",
                AFTER,
                assigns("param_groups"),
                "self.optim.state.clear()\n",
                what="the discarding of the groups",
            ),
            Edit(
                "GeminiOptimizer.load_single_param_states",
                INSTEAD,
                calls("update"),
                "self.optim.state[fake_param] = updated_states\n",
                what="the update of the states",
            ),
        ],
    ),
    Change(
        "colossalai/booster/plugin/gemini_plugin.py",
        [
            Edit(
                "GeminiCheckpointIO.load_sharded_optimizer",
                INSTEAD,
                assigns("saved_param_groups"),
                """
                ckpt_index_file.assert_files_exist()
                saved_param_groups = torch.load(param_group_path, map_location=torch.device("cpu"))
                """,
                what="the reading of the groups",
            )
        ],
    ),
]
