"""The double under test: its broker is a set of targets, played by its script."""

import itertools
from collections.abc import Sequence

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge_connectors.memory import MemoryPublisher
from tests.support.contract.broker_under_test import BRIDGE_ID, Features, Received, delivery

LARGEST_BODY = 1 << 20
INVALID_KEY = b"invalid"


class MemoryBroker:
    """One publisher, whose script knows which targets exist."""

    features = Features(
        broker="memory",
        largest_body=LARGEST_BODY,
        keys=True,
        null_body=True,
        typed_headers=True,
        null_header_values=True,
        ordered_headers=True,
        repeated_header_names=True,
        properties=True,
        missing_target=True,
        size_limit=True,
        invalid=True,
    )

    def __init__(self) -> None:
        self._names = itertools.count()
        self._targets: set[Target] = set()
        self._publisher = MemoryPublisher()

    def open(self, deadline_s: float) -> MemoryPublisher:
        self._publisher.script(self._judge)
        self._publisher.reopen(deadline_s)
        return self._publisher

    def open_at(self, port: int, deadline_s: float) -> MemoryPublisher:
        publisher = MemoryPublisher(deadline_s)
        publisher.is_available = False
        return publisher

    def missing_target(self) -> Target:
        return Target("memory", topic=f"topic-{next(self._names)}")

    def create(self, target: Target) -> None:
        self._targets.add(target)

    def delete(self, target: Target) -> None:
        self._targets.remove(target)

    def read_all(self, target: Target) -> Sequence[Received]:
        return [_received(d) for d in self._publisher.delivered if d.target == target]

    def too_large(self, target: Target) -> Delivery:
        return delivery(target, b"x" * (LARGEST_BODY + 1))

    def invalid(self) -> tuple[Delivery, Delivery]:
        target = self.missing_target()
        self.create(target)
        return delivery(target, key=INVALID_KEY), delivery(target)

    def _judge(self, delivery: Delivery) -> Outcome | None:
        if delivery.target not in self._targets:
            return Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "NoSuchTopic", "missing")
        if delivery.body is not None and len(delivery.body) > LARGEST_BODY:
            return Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "TooLarge", "too large")
        if delivery.key == INVALID_KEY:
            return Outcome(Verdict.REJECTED, Reason.INVALID, "Invalid", "this key")
        return None


def _received(given: Delivery) -> Received:
    headers = tuple(header for header in given.headers if header[0] != BRIDGE_ID)
    return Received(given.body, given.id, given.key, headers, given.properties)
