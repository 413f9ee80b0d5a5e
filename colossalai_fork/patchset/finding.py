"""What a patch meets at one place of a source tree."""

import dataclasses

READY, OURS, REVIEWED, CHANGED = "ready", "ours", "reviewed", "changed"

CRLF = "has CRLF line ends in the last commit; commit it with LF, as ColossalAI has it"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one place of a patch looks like in a tree.

    Args:
        place (str): the file, and the function or method in it.
        verdict (str): ``ready`` (the patch fits), ``ours`` (it is in), ``reviewed`` (it is in, with other messages) or
            ``changed`` (neither).
        version (str | None): the ColossalAI version that is known to have this function, if it is ready to be replaced.
        change (str | None): what is not as known or not as in the series, with the lines.
    """

    place: str
    verdict: str
    version: str | None = None
    change: str | None = None

    @property
    def is_in(self) -> bool:
        """bool: whether the patch has been here."""
        return self.verdict in (OURS, REVIEWED)
