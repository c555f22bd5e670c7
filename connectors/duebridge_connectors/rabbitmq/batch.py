"""One call of `publish` under way: its deliveries ready for the wire, and what became of each.

The caller's thread makes it and waits for it; in between only the connection's thread changes it.
"""

import threading

from duebridge.ports.publisher import Outcome


class Batch:
    """Outcomes that arrive one by one. It is over when all are there, or nobody waits any more.

    `groups` are its parcels by exchange, each group in order; a batch without any is a ping, whose
    one outcome is whether the broker answered.
    """

    def __init__(self, size: int) -> None:
        self.groups: dict[str, list[Parcel]] = {}
        self.outcomes: list[Outcome | None] = [None] * size
        self.is_over = False
        self._left = size
        self._complete = threading.Event()

    def settle(self, place: int, outcome: Outcome) -> None:
        """Say what became of the delivery at a place; the first word counts."""
        if self.outcomes[place] is not None:
            return
        self.outcomes[place] = outcome
        self._left -= 1
        if not self._left:
            self.is_over = True
            self._complete.set()

    def settle_rest(self, outcome: Outcome) -> None:
        """Say the same of every delivery whose outcome is not known yet."""
        for place in range(len(self.outcomes)):
            self.settle(place, outcome)

    def wait(self, seconds: float) -> bool:
        """Return True as soon as every outcome is there, False after that time."""
        return self._complete.wait(seconds)

    def end(self, sent: Outcome, unsent: Outcome) -> list[Outcome]:
        """Wait no more, and return every outcome: what is not known is one of the two."""
        self.is_over = True
        parcels = [parcel for group in self.groups.values() for parcel in group]
        sent_places = {parcel.place for parcel in parcels if parcel.is_sent}
        return [
            outcome or (sent if place in sent_places else unsent)
            for place, outcome in enumerate(self.outcomes)
        ]


class Parcel:
    """One delivery of a batch, encoded but for the number of its channel."""

    __slots__ = (
        "batch",
        "body",
        "header",
        "id",
        "is_risky",
        "is_sent",
        "method",
        "older",
        "place",
        "returned",
        "routing_key",
    )

    def __init__(
        self,
        batch: Batch,
        place: int,
        id_: str,
        routing_key: str,
        method: bytes,
        header: bytes,
        body: bytes,
        is_risky: bool,
    ) -> None:
        self.batch = batch
        self.place = place
        self.id = id_
        self.routing_key = routing_key
        self.method = method
        self.header = header
        self.body = body
        self.is_risky = is_risky
        self.is_sent = False
        self.older: Parcel | None = None  # of the same id, and under way as well
        self.returned: Outcome | None = None  # what a basic.return has made of it

    @property
    def is_settled(self) -> bool:
        """Whether its outcome is known."""
        return self.batch.outcomes[self.place] is not None

    def settle(self, outcome: Outcome) -> None:
        """Say what became of it; a basic.return that came before is the better word."""
        self.older = None
        self.batch.settle(self.place, self.returned or outcome)
