"""Why an envelope is dead: the words of `x-dlq-reason`, and their numbers in the store."""

from enum import IntEnum


class Reason(IntEnum):
    """The numbers are stored; lua/shared/flight.lua knows EXPIRED and POISON."""

    ATTEMPTS_EXHAUSTED = 1
    EXPIRED = 2
    UNROUTABLE = 3
    TOO_LARGE = 4
    UNAUTHORIZED = 5
    TARGET_MISSING = 6
    POISON = 7
    INVALID = 8

    @property
    def word(self) -> str:
        """The reason as headers, logs and metrics spell it."""
        return self.name.lower()


def reason_word(number: int) -> str:
    """Return the word of a stored reason; one that only a newer duebridge knows is its number."""
    try:
        return Reason(number).word
    except ValueError:
        return str(number)
