"""A worker with something of everything to do, and what must have become of it in the end."""

from collections.abc import Iterable, Mapping
from typing import Any

from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from tests.acceptance.floor import Floor

FINE, FAILS_ONCE, REFUSED = ["a", "b", "c", "d"], "e", "f"
IDS = [*FINE, FAILS_ONCE, REFUSED]
ROUTES: dict[str, Any] = {
    "r": {
        "target": {"broker": "memory", "topic": "t"},
        "dead_letter": {"broker": "memory", "topic": "dlt"},
        "retry": {"initial": "1s", "jitter": "none"},
    }
}
LEASE_MS = 30_000
_DEFECTS = {"batch_failed", "publisher_failed"}


def invite(floor: Floor) -> None:
    """Schedule them all, due in a second."""
    failed: set[str] = set()

    def outcome(delivery: Delivery) -> Outcome | None:
        if delivery.target.topic != "t":
            return None
        if delivery.id == FAILS_ONCE and delivery.id not in failed:
            failed.add(delivery.id)
            return Outcome(Verdict.FAILED, error_class="E", error_message="not now")
        if delivery.id == REFUSED:
            return Outcome(Verdict.REJECTED, Reason.INVALID, "E", "never")
        return None

    floor.publisher.script(outcome)
    floor.schedule(*IDS)


def finish(floor: Floor) -> None:
    """Let every lease and every pause end, and the worker do what is left."""
    for _ in range(5):
        floor.turn(LEASE_MS + 1000)


def check_all_arrived(floor: Floor) -> None:
    """Nothing is lost, nothing is other than it was, nothing is left in the store."""
    assert set(floor.arrived()) == {*FINE, FAILS_ONCE}
    assert set(floor.arrived("dlt")) == {REFUSED}
    for each in floor.publisher.delivered:
        assert each.body == f"body of {each.id}".encode()
    assert floor.stores["r"].next().envelopes == 0


def check_no_defect(logs: Iterable[Mapping[str, Any]]) -> None:
    """What a worker logs as unforeseen is a crash that only did not end it."""
    for each in logs:
        is_shunt = each["event"] == "shunt_failed" and each["log_level"] == "error"
        assert each["event"] not in _DEFECTS, each
        assert not is_shunt, each
