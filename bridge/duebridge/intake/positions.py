"""Keeps the positions of logs that keep none themselves, such as streams."""

from collections.abc import Iterable, Mapping, Sequence

from duebridge.intake.requests import RefusedMessage
from duebridge.ports.source import Arrival, LogPosition, Positions


class WantedPositions:
    """Positions that are written of those logs alone that the source has read one of."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._wanted: set[str] = set()

    def read(self, log: str) -> int | None:
        """Return the offset of the last message that was settled. Raises `StoreError`."""
        self._wanted.add(log)
        return self._positions.read(log)

    def write(self, log: str, offset: int) -> None:
        """Note that every message up to an offset is settled. Raises `StoreError`."""
        self._positions.write(log, offset)

    def unsettled(self, refusals: Sequence[RefusedMessage]) -> list[RefusedMessage]:
        """Return refusals without those that another process has settled: their letters are out.

        Raises `StoreError`.
        """
        places = (each.arrival.place for each in refusals)
        logs = {place.log for place in places if place is not None} & self._wanted
        settled = {log: self._positions.read(log) for log in logs}
        return [each for each in refusals if not _is_settled(each.arrival.place, settled)]

    def note(self, arrivals: Iterable[Arrival]) -> None:
        """Note the last message of each wanted log; what is in a batch is in its log's order."""
        if not self._wanted:
            return
        last = {each.place.log: each.place.offset for each in arrivals if each.place is not None}
        for log in self._wanted & last.keys():
            self._positions.write(log, last[log])


def _is_settled(place: LogPosition | None, settled: Mapping[str, int | None]) -> bool:
    last = None if place is None else settled.get(place.log)
    return last is not None and place is not None and place.offset <= last
