"""The words that all rooms share."""

from typing import Protocol


class Progress(Protocol):
    """Where a long piece of work says how far it is. Showing it is the command line's business."""

    def stage(self, name: str, total: int, unit: str = "B") -> None:
        """A new stage of `total` units begins; the one before it is over."""
        ...

    def advance(self, amount: int) -> None:
        """So much more of the stage is done."""
        ...

    def note(self, message: str) -> None:
        """Something that a user who watches may want to know."""
        ...

    def warn(self, message: str) -> None:
        """Something that every user should read."""
        ...


class Silence:
    """Progress that nobody watches."""

    def stage(self, name: str, total: int, unit: str = "B") -> None:
        pass

    def advance(self, amount: int) -> None:
        pass

    def note(self, message: str) -> None:
        pass

    def warn(self, message: str) -> None:
        pass
