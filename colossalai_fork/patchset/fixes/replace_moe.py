"""MoE: the state is replaced and cut once, each group keeps what was saved for it, and one file works."""

from ..text.places import BEFORE, INSTEAD, Change, Edit, asks, calls
from .replace_hybrid_parallel import reads_groups, replaces_groups

_IO = "MoECheckpointIO"

_GATHER = """
local_states[param_id] = MoECheckpointIO.gather_from_sharded_optimizer_state(
    state,
    working_param,
    original_shape=optimizer.param_info["param2shape"][id(working_param)],
    global_dp_group=self.global_dp_group,
    tp_group=self.tp_group,
    use_zero=self.use_zero,
    inplace=False,
    is_moe_param=is_moe_tensor(working_param),
    moe_dp_group=self.moe_dp_group,
)
"""

_SAVE = """
states_list = [None for _ in range(dist.get_world_size())]
dist.all_gather_object(states_list, local_states)
if self.coordinator.is_master():
    pairs = zip(optimizer.param_groups, optimizer.param_info["param_groups"])
    param_groups = [{**group, "params": group_info["params"]} for group, group_info in pairs]
    # the first rank that holds a state has gathered it
    states = {param_id: state for _states in reversed(states_list) for param_id, state in _states.items()}
    save_state_dict({"param_groups": param_groups, "state": states}, checkpoint, use_safetensors=False)
"""

_CUT = """
sharded_state = self.shard_from_complete_optimizer_state(
    state,
    current_shape=working_param.shape,
    original_shape=original_shape,
    device=device,
    inplace=True,
    is_moe_param=is_moe_tensor(working_param),
)
"""

CHANGES = [
    Change(
        "colossalai/checkpoint_io/moe_checkpoint.py",
        [
            Edit(
                f"{_IO}.gather_from_sharded_optimizer_state",
                INSTEAD,
                calls("cuda"),
                "v = v.to(param.device)\n",
                what="the move to the device",
            ),
            reads_groups(f"{_IO}.load_sharded_optimizer"),
            replaces_groups(f"{_IO}.load_sharded_optimizer", "saved_groups"),
            Edit(
                f"{_IO}.shard_from_complete_optimizer_state",
                BEFORE,
                calls("detach"),
                """
                if self.use_zero and v.dim() > 1:
                    v = v.flatten()  # also where a group of one rank cuts nothing off
                """,
                what="the copy of a tensor",
            ),
            Edit(
                f"{_IO}.save_unsharded_optimizer",
                INSTEAD,
                calls("pre_save_optim"),
                _GATHER,
                what="the gathering of a state",
            ),
            Edit(
                f"{_IO}.save_unsharded_optimizer",
                INSTEAD,
                asks("pp_size"),
                _SAVE,
                what="the choice between one and several pipeline stages",
            ),
            replaces_groups(f"{_IO}.load_unsharded_optimizer", 'state_dict["param_groups"]'),
            Edit(
                f"{_IO}.load_unsharded_optimizer",
                INSTEAD,
                calls("pre_load_optim"),
                _CUT,
                what="the cutting of a state",
            ),
        ],
    )
]
