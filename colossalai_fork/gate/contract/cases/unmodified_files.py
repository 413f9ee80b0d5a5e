"""Contract point 1: what unmodified ColossalAI has saved, and what fits, loads."""

import contextlib
import sys
from typing import Iterator

import pytest

from ..base import case
from .own_files import SIZES, OwnFilesCases


class UnmodifiedFilesCases(OwnFilesCases):
    """Checkpoints written by the same class of unmodified ColossalAI, which the overlay makes way for as it saves."""

    @contextlib.contextmanager
    def unmodified(self) -> Iterator[None]:
        """Have ColossalAI as it is installed for a block."""
        import colossalai_fork

        # Where nobody has asked for the overlay it may not be importable either: a patched ColossalAI is judged so.
        loaded = "colossalai_fork.overlay.apply" in sys.modules
        replaced = loaded and any(row.state == "replaced" for row in colossalai_fork.status())
        self.require(replaced, "the overlay is not in, so what is installed saves anyway")
        colossalai_fork.revert()
        try:
            yield
        finally:
            colossalai_fork.apply()

    @pytest.mark.parametrize("shards", [*SIZES, "one file"])
    @pytest.mark.parametrize("steps", [0, 3])
    @case(1, rows=(2,))
    def test_saved_by_unmodified_colossalai(self, steps: int, shards: str) -> None:
        source, subject = self.trained(seed=1, steps=steps), self.trained(seed=2)
        options = {"shard": False} if shards == "one file" else {"size_per_shard": SIZES[shards]}
        with self.unmodified():
            path = self.save(source, **options)
        # Saving may have made entries without anything in them.
        for owner in [owner for owner, state in source.inner.state.items() if not state]:
            del source.inner.state[owner]
        self._goes_on_alike(source, subject, path)
