"""The contract for GeneralCheckpointIO."""

from ..configurations import GeneralContract


class TestGeneral(GeneralContract):
    """One process."""

    thorough = True
