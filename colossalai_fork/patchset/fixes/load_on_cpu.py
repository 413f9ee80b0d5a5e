"""Loading works without an accelerator: there is nothing to wait for, and nothing to pin memory for."""

import libcst as cst

from ..text.places import BEFORE, INSTEAD, Change, Edit, is_a


def _does_nothing(name: str, why: str) -> Edit:
    return Edit(
        f"CpuAccelerator.{name}", INSTEAD, is_a(cst.Raise), f"return  # {why}\n", what="the exception that refuses"
    )


CHANGES = [
    Change(
        "colossalai/accelerator/cpu_accelerator.py",
        [
            _does_nothing("synchronize", "a CPU has no queue to wait for"),
            _does_nothing("empty_cache", "a CPU has no cache of its own"),
        ],
    ),
    Change(
        "colossalai/checkpoint_io/utils.py",
        [
            Edit(
                "_pin_tensor",
                BEFORE,
                lambda statement: isinstance(statement, cst.If),
                """
                if get_accelerator().name == "cpu":
                    # memory is pinned for copies to a device, and there is none
                    return torch.empty_like(tensor, device="cpu") if empty else tensor.clone()
                """,
                what="its first branch",
            )
        ],
    ),
]
