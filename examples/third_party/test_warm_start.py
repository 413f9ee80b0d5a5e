"""Holds the class against the contract. That is all it takes."""

import pathlib
import sys

from colossalai_fork.gate.configurations import GeneralContract

# Cases run in processes of their own, which look for modules where this one does.
sys.path.insert(0, str(pathlib.Path(__file__).parent))


class TestWarmStart(GeneralContract):
    """One process, one file."""

    class_under_test = "WarmStartCheckpointIO"
    layouts = ("torch-one-file",)

    def checkpoint_io(self):
        from warm_start import WarmStartCheckpointIO

        return WarmStartCheckpointIO()
