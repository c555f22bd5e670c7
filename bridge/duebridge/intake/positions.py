"""Keeps the positions of logs that keep none themselves, such as streams."""

from collections.abc import Sequence

from duebridge.ports.source import Arrival, Positions


class WantedPositions:
    """Positions that are written of those logs alone that the source has read one of."""

    def __init__(self, kept: Positions) -> None:
        self._kept = kept
        self._wanted: set[str] = set()

    def read(self, log: str) -> int | None:
        """Return the offset of the last message that was settled. Raises `StoreError`."""
        self._wanted.add(log)
        return self._kept.read(log)

    def write(self, log: str, offset: int) -> None:
        """Note that every message up to an offset is settled. Raises `StoreError`."""
        self._kept.write(log, offset)

    def note(self, arrivals: Sequence[Arrival]) -> None:
        """Note the last message of each wanted log; what is in a batch is in its log's order."""
        if not self._wanted:
            return
        last = {each.place.log: each.place.offset for each in arrivals if each.place is not None}
        for log in self._wanted & last.keys():
            self._kept.write(log, last[log])
