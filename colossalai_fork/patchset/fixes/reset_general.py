"""A sharded checkpoint replaces the state: General, TorchDDP and, through the helper that they share, LowLevelZero."""

from ..text.places import BEFORE, INSTEAD, Change, Edit, Method, both, calls, mentions


def _checks_files(owner: str) -> Edit:
    return Edit(
        f"{owner}.load_sharded_optimizer",
        BEFORE,
        calls("load_param_groups_into_optimizer"),
        "ckpt_index_file.assert_files_exist()\n",
        what="the call that loads the groups",
    )


#: Lets tests run where there is no accelerator.
TESTS_ON_CPU = Change(
    "tests/conftest.py",
    [
        Edit(
            "pytest_runtest_setup",
            INSTEAD,
            calls("empty_cache"),
            """
            if accelerator.name != "cpu":
                accelerator.empty_cache()
            """,
            what="the emptying of the cache",
        )
    ],
    optional=True,
)

CHANGES = [
    Change(
        "colossalai/checkpoint_io/index_file.py",
        [
            Method(
                "CheckpointIndexFile",
                '''
                def assert_files_exist(self):
                    """
                    Make sure that no shard is missing.

                    Raises:
                        FileNotFoundError: if the weight map lists files that do not exist.
                    """
                    missing = [file for file in self.get_checkpoint_filenames()[0] if not os.path.isfile(file)]
                    if missing:
                        raise FileNotFoundError(f"The checkpoint lacks {', '.join(missing)}, which its index lists")
                ''',
                after=("assert_no_dtensor_checkpoint",),
            )
        ],
    ),
    Change(
        "colossalai/checkpoint_io/utils.py",
        [
            Edit(
                "load_param_groups_into_optimizer",
                INSTEAD,
                both(calls("update"), mentions("param_groups")),
                """
                # What the checkpoint does not have must not survive, so the states are loaded into an empty optimizer.
                optimizer.__setstate__({"state": defaultdict(dict), "param_groups": updated_groups})
                """,
                what="the update of the groups",
            )
        ],
    ),
    Change("colossalai/checkpoint_io/general_checkpoint_io.py", [_checks_files("GeneralCheckpointIO")]),
    Change("colossalai/booster/plugin/low_level_zero_plugin.py", [_checks_files("LowLevelZeroCheckpointIO")]),
    TESTS_ON_CPU,
]
