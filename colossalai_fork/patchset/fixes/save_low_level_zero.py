"""LowLevelZero: what has no state yet can be saved in shards."""

from ..text.places import BEFORE, Change, Edit, reads

CHANGES = [
    Change(
        "colossalai/zero/low_level/low_level_optim.py",
        [
            Edit(
                "LowLevelZeroOptimizer.state_dict_shard",
                BEFORE,
                reads("local_states", "param_idx"),
                """
                if param_idx not in local_states:
                    # no step yet, or no gradient
                    continue
                """,
                what="the reading of a parameter's state",
            )
        ],
    )
]
