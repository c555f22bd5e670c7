"""The verdict on the guarantee: one pure function of what was accepted and what arrived.

The demo prints it, the fault tests assert it, and Spark's reconciliation is checked against it.
It reads nothing itself: an independent consumer reads the brokers, a dump the store.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import msgspec

from bridge.envelope import Headers
from bridge.headers import RESERVED, RESERVED_PREFIX


class Accepted(msgspec.Struct, frozen=True):
    """An envelope that the store said it accepted, with the due instant of the last receipt."""

    id: str
    due_at_ms: int
    fingerprint: str = ""


class Arrived(msgspec.Struct, frozen=True):
    """A message found at a target or dead-letter target; `at_ms` is the broker's own word."""

    id: str
    at_ms: int
    fingerprint: str = ""


class History(msgspec.Struct, frozen=True):
    """All that is known of a run.

    `attempted` are ids whose scheduling got no answer: they may arrive, and need not. `cancelled`
    are those that cancel answered *cancelled* for; `excused` those it answered *in_flight* for:
    they may arrive, and need not. `held` is what the store still has: id to state.
    """

    accepted: Sequence[Accepted]
    delivered: Sequence[Arrived]
    dead: Sequence[Arrived] = ()
    cancelled: frozenset[str] = frozenset()
    excused: frozenset[str] = frozenset()
    attempted: frozenset[str] = frozenset()
    held: Mapping[str, str] = msgspec.field(default_factory=dict)


class Verdict(msgspec.Struct, frozen=True):
    """Ids by what is wrong with them, and how late each delivery was, in ms."""

    accepted: int
    delivered: int
    cancelled: int
    dead: int
    lost: list[str]
    early: list[str]
    after_cancel: list[str]
    unexpected: list[str]
    corrupt: list[str]
    stuck: list[str]
    in_two_places: list[str]
    duplicates: dict[str, int]
    lateness_ms: list[int]

    @property
    def holds(self) -> bool:
        """Whether the guarantee was kept; duplicates are lawful after a fault, and only then."""
        broken = (self.lost, self.early, self.after_cancel, self.unexpected, self.corrupt)
        return not any((*broken, self.stuck))

    @property
    def duplicate_copies(self) -> int:
        """How many more messages arrived than ids."""
        return sum(self.duplicates.values())

    def lateness_percentile_ms(self, percent: float) -> int:
        """Return the lateness that so many percent of the deliveries did not exceed; 0 for none."""
        if not self.lateness_ms:
            return 0
        place = min(len(self.lateness_ms) - 1, int(len(self.lateness_ms) * percent / 100))
        return sorted(self.lateness_ms)[place]


def audit(history: History) -> Verdict:
    """Return the verdict on a run that is over: whatever the store still holds as due is stuck."""
    due = {each.id: each.due_at_ms for each in history.accepted}
    sent = {each.id: each.fingerprint for each in history.accepted}
    copies = Counter(each.id for each in history.delivered)
    dead = {each.id for each in history.dead}
    dead |= {each for each, state in history.held.items() if state == "dead"}
    accounted = copies.keys() | dead | history.held.keys() | history.cancelled | history.excused
    known = due.keys() | history.attempted
    arrived = [each for each in history.delivered if each.id in due]
    return Verdict(
        accepted=len(due),
        delivered=len(copies),
        cancelled=len(history.cancelled),
        dead=len(dead),
        lost=sorted(due.keys() - accounted),
        early=sorted({each.id for each in arrived if each.at_ms < due[each.id]}),
        after_cancel=sorted(history.cancelled & copies.keys()),
        unexpected=sorted((copies.keys() | dead) - known),
        corrupt=_corrupt([*history.delivered, *history.dead], sent),
        stuck=sorted(each for each, state in history.held.items() if state != "dead"),
        in_two_places=sorted(copies.keys() & dead),
        duplicates={each: count - 1 for each, count in sorted(copies.items()) if count > 1},
        lateness_ms=[each.at_ms - due[each.id] for each in arrived],
    )


def _corrupt(arrived: Iterable[Arrived], sent: Mapping[str, str]) -> list[str]:
    wrong = {
        each.id
        for each in arrived
        if each.fingerprint and sent.get(each.id) and each.fingerprint != sent[each.id]
    }
    return sorted(wrong)


def fingerprint(body: bytes | None, key: bytes | None, headers: Headers) -> str:
    """Return a hash of what must arrive as it was given; headers that the bridge sets are left out.

    A header's value is taken as text, since Kafka carries nothing but bytes. An AMQP content type
    arrives at a Kafka topic as one more header, `content-type`: give it here where it was set.
    """
    digest = sha256()
    for part in (body, key):
        digest.update(b"-" if part is None else b"+%d:" % len(part) + part)
    for name, value in headers:
        if name not in RESERVED and not name.startswith(RESERVED_PREFIX):
            digest.update(f"{name}={_as_text(value)};".encode())
    return digest.hexdigest()


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value).lower() if isinstance(value, bool) else str(value)
