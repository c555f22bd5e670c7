"""A batch that an intake has taken in and not settled yet."""

from collections import deque
from collections.abc import Sequence

from duebridge.intake.intake_store import Call, IntakeStore
from duebridge.intake.requests import RefusedMessage, Rules, read_arrival
from duebridge.ports.source import Arrival
from duebridge.store.wire.transitions import KeptMessage


class UnsettledBatch:
    """Messages that are not settled yet, and what is left to do for them.

    It packs them: `IntakeLoop` makes a batch while the one before waits for the store.
    """

    def __init__(
        self, arrivals: Sequence[Arrival], rules: Rules, store: IntakeStore, began: float
    ) -> None:
        requests = [read_arrival(rules, arrival) for arrival in arrivals]
        self.arrivals = arrivals
        self.began = began
        self.calls: deque[Call] = deque(store.calls(requests))
        self.is_repeated = False
        # Those with a place come back from the step that keeps it.
        refused = (each for each in requests if isinstance(each, RefusedMessage))
        self.letters = [each for each in refused if each.arrival.place is None]
        self.kept: list[KeptMessage] = []  # those that the dead-letter target rejects for good
