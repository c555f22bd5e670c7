"""The refusal of a message, and its reasons."""

from duebridge.ports.publisher import Reason


class MessageRefused(Exception):
    """A message cannot be scheduled; it goes to the intake's dead-letter target."""

    def __init__(self, text: str, reason: Reason = Reason.INVALID) -> None:
        super().__init__(text)
        self.reason = reason


_REASONS = (  # how the limits' messages begin
    ("target", Reason.UNROUTABLE),
    ("body: expected at most", Reason.TOO_LARGE),
    ("headers: expected at most", Reason.TOO_LARGE),
    ("message: expected at most", Reason.TOO_LARGE),
    ("envelope: expected up to", Reason.TOO_LARGE),
)


def reason_of(text: str) -> Reason:
    """Return the reason that a refusal of the route's limits stands for."""
    return next((reason for start, reason in _REASONS if text.startswith(start)), Reason.INVALID)
