"""Replaces attributes for a while and puts back exactly what was there."""

_ABSENT = object()


class Replacements:
    """A stack of replaced attributes."""

    def __init__(self) -> None:
        self._originals = []

    def put(self, owner: object, name: str, value: object) -> None:
        """Replace an attribute.

        Args:
            owner (object): class, module or object that gets the attribute.
            name (str): the attribute.
            value (object): its value until :meth:`restore`.
        """
        # The owner's own dictionary, so that an inherited attribute is inherited again afterwards.
        self._originals.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Put back every replaced attribute, the latest first."""
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
