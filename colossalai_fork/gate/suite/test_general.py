"""The contract for GeneralCheckpointIO."""

from ..configurations import GeneralContract
from ..contract.cases.optimizers import only_cases_of
from ..contract.cases.own_loaders import OwnLoaderCases


class TestGeneral(GeneralContract):
    """One process."""

    thorough = True


@only_cases_of(OwnLoaderCases)
class TestLoadersOfOnesOwn(OwnLoaderCases, GeneralContract):
    """The two functions that loaders of one's own are made of."""
