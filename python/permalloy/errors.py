"""Errors that a user of the compiler can meet."""

from __future__ import annotations


class PermalloyError(Exception):
    """Base of every error raised by Permalloy itself."""


class UnsupportedError(PermalloyError):
    """Something would have to run outside the compiler, and ``config.strict`` (or a ``config.deny`` entry) forbids it.

    ``operator`` and ``location`` (the source line of the user's model) are None when the reason concerns no operator.
    """

    def __init__(self, reason: str, operator: str | None = None, location: str | None = None) -> None:
        self.reason, self.operator, self.location = reason, operator, location
        where = "".join([f" [{operator}]" if operator else "", f" at {location}" if location else ""])
        Exception.__init__(self, f"{reason}{where}")


class InternalError(PermalloyError):
    """A failed internal check: a bug of ours. ``reproducer`` names the saved graph and options, if there are any."""

    def __init__(self, message: str, reproducer: str | None = None) -> None:
        self.message, self.reproducer = message, reproducer
        Exception.__init__(self, message + (f"; reproducer saved as {reproducer}" if reproducer else ""))


class FallbackWarning(UserWarning):
    """A graph runs as PyTorch's own operators, one by one. Given once for each reason."""


class Unsupported(Exception):
    """Raised inside the glue: this graph cannot go to the compiler, run it natively."""

    def __init__(
        self, reason: str, node: object = None, operator: str | None = None, location: str | None = None
    ) -> None:
        self.reason, self.operator, self.location = reason, operator, location
        if node is not None:
            from .export import location_of, operator_of

            self.operator, self.location = operator_of(node), location_of(node)
        super().__init__(reason)

    def public(self) -> UnsupportedError:
        """The same as the error that strict mode raises."""
        return UnsupportedError(self.reason, self.operator, self.location)
