"""What goes wrong while patching, as messages for the person at the keyboard."""


class PatchError(Exception):
    """The series cannot be made or used; the message says why and what would help."""


class DriftError(PatchError):
    """Upstream's source is not what the series was written for.

    Args:
        changes (list[str]): one text per changed function or file, each with a diff where one can be made.
    """

    def __init__(self, changes: list[str]) -> None:
        self.changes = list(changes)
        plural = (
            "places that this series replaces are" if len(self.changes) != 1 else "place that this series replaces is"
        )
        super().__init__(f"{len(self.changes)} {plural} not as this series knows it:\n\n" + "\n\n".join(self.changes))
