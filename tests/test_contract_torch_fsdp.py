"""The gate's cases for this class, run as part of the project's own tests."""

from colossalai_fork.gate.test_torch_fsdp import (
    TestTorchFSDP,
    TestTorchFSDPAlone,
    TestTorchFSDPOnFour,
    TestTorchFSDPWithoutSharding,
)

__all__ = [
    "TestTorchFSDP",
    "TestTorchFSDPAlone",
    "TestTorchFSDPOnFour",
    "TestTorchFSDPWithoutSharding",
]
