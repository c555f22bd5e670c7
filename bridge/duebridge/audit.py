"""Verifies the delivery guarantee: compares accepted envelopes with messages that arrived.

Pure functions. The demo prints the verdict, fault tests assert it, and tests check Spark's
reconciliation against it. An independent consumer reads the brokers; a dump reads the store.

    History ─▶ audit ─▶ AuditVerdict ─▶ violations(Bounds)
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter

import msgspec

from duebridge.envelope import Headers
from duebridge.headers import RESERVED, RESERVED_PREFIX


class AcceptedEnvelope(msgspec.Struct, frozen=True):
    """An envelope that the store accepted, with the due instant of its last receipt.

    `dues` are the other instants that it may have been due at, of earlier answers and of calls
    without an answer.
    """

    id: str
    due_at_ms: int
    fingerprint: str = ""
    dues: frozenset[int] = frozenset()


class ArrivedEnvelope(msgspec.Struct, frozen=True):
    """A message found at a target or dead-letter target; `at_ms` is by the broker's clock.

    `header_due_ms` is its header x-due-at, 0 if unknown. It `is_misplaced` where its route has no
    such target, a dead letter among deliveries and a delivery among dead letters included.
    """

    id: str
    at_ms: int
    fingerprint: str = ""
    header_due_ms: int = 0
    is_misplaced: bool = False


class History(msgspec.Struct, frozen=True):
    """The merged history of a run.

    `attempted` ids were scheduled without an answer: they may or may not arrive. Cancel answered
    *cancelled* for `cancelled` ids and *in_flight* for `excused` ids; the latter may or may not
    arrive. `held` maps ids that the store still holds to their state. `sent` maps every id handed
    to the producer, accepted or not, to its fingerprint.
    """

    accepted: Sequence[AcceptedEnvelope]
    delivered: Sequence[ArrivedEnvelope]
    dead: Sequence[ArrivedEnvelope] = ()
    cancelled: frozenset[str] = frozenset()
    excused: frozenset[str] = frozenset()
    attempted: frozenset[str] = frozenset()
    held: Mapping[str, str] = msgspec.field(default_factory=dict)
    sent: Mapping[str, str] = msgspec.field(default_factory=dict)


class Bounds(msgspec.Struct, frozen=True):
    """The violations that the faults of a run permit; all other counts must be zero."""

    duplicates: int = 0
    in_two_places: int = 0
    dead: int = 0


BROKEN = (
    "lost", "early", "after_cancel", "unexpected", "corrupt", "stuck", "misplaced", "misdated",
)  # fmt: skip


class AuditVerdict(msgspec.Struct, frozen=True):
    """Ids by violation, and the lateness of each delivery in ms.

    `recovered` ids are no violation: they arrived although scheduling got no answer.
    """

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
    misplaced: list[str]
    misdated: list[str]
    in_two_places: list[str]
    duplicates: dict[str, int]
    lateness_ms: list[int]
    recovered: list[str] = msgspec.field(default_factory=list)
    buried: list[str] = msgspec.field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the guarantee held; duplicates do not break it, `violations` bounds them."""
        return not any(getattr(self, kind) for kind in BROKEN)

    def violations(self, bounds: Bounds = Bounds()) -> dict[str, list[str]]:  # noqa: B008 - frozen
        """Return the ids of every violation beyond its bound; empty if the guarantee held."""
        found = {kind: getattr(self, kind) for kind in BROKEN}
        if self.duplicate_copies > bounds.duplicates:
            found["duplicates"] = list(self.duplicates)
        if len(self.in_two_places) > bounds.in_two_places:
            found["in_two_places"] = self.in_two_places
        if len(self.buried) > bounds.dead:
            found["dead"] = self.buried
        return {kind: ids for kind, ids in found.items() if ids}

    @property
    def duplicate_copies(self) -> int:
        """The number of surplus messages: arrived messages minus distinct ids."""
        return sum(self.duplicates.values())

    def lateness_percentile_ms(self, percent: float) -> int:
        """Return a percentile of the lateness; 0 without deliveries."""
        if not self.lateness_ms:
            return 0
        place = min(len(self.lateness_ms) - 1, int(len(self.lateness_ms) * percent / 100))
        return sorted(self.lateness_ms)[place]


def audit(history: History) -> AuditVerdict:
    """Return the verdict on a finished run; a live envelope left in the store counts as stuck."""
    due = {each.id: each.due_at_ms for each in history.accepted}
    sent = {**history.sent, **{each.id: each.fingerprint for each in history.accepted}}
    copies = Counter(each.id for each in history.delivered)
    dead = {each.id for each in history.dead}
    dead |= {each for each, state in history.held.items() if state == "dead"}
    accounted = copies.keys() | dead | history.held.keys() | history.cancelled | history.excused
    known = due.keys() | history.attempted
    arrived = [each for each in history.delivered if each.id in due]
    came = [*history.delivered, *history.dead]
    return AuditVerdict(
        accepted=len(due),
        delivered=len(copies),
        cancelled=len(history.cancelled),
        dead=len(dead),
        lost=sorted(due.keys() - accounted),
        early=sorted({each.id for each in arrived if each.at_ms < due[each.id]}),
        after_cancel=sorted(history.cancelled & (copies.keys() | dead)),
        unexpected=sorted((copies.keys() | dead) - known),
        corrupt=_corrupt(came, sent),
        stuck=sorted(each for each, state in history.held.items() if state != "dead"),
        misplaced=sorted({each.id for each in came if each.is_misplaced}),
        misdated=_misdated(came, history.accepted),
        in_two_places=sorted(copies.keys() & dead),
        duplicates={each: count - 1 for each, count in sorted(copies.items()) if count > 1},
        lateness_ms=[each.at_ms - due[each.id] for each in arrived],
        recovered=sorted(history.attempted & (copies.keys() | dead)),
        buried=sorted(dead),
    )


def _corrupt(arrived: Iterable[ArrivedEnvelope], sent: Mapping[str, str]) -> list[str]:
    wrong = {
        each.id
        for each in arrived
        if each.fingerprint and sent.get(each.id) and each.fingerprint != sent[each.id]
    }
    return sorted(wrong)


def _misdated(
    arrived: Iterable[ArrivedEnvelope], accepted: Iterable[AcceptedEnvelope]
) -> list[str]:
    """Return the ids whose header x-due-at is no instant that they were ever due at."""
    dues = {each.id: each.dues | {each.due_at_ms} for each in accepted}
    return sorted(
        {
            each.id
            for each in arrived
            if each.header_due_ms and each.id in dues and each.header_due_ms not in dues[each.id]
        }
    )


def fingerprint(
    body: bytes | None,
    key: bytes | None,
    headers: Headers,
    properties: Mapping[str, str | int | None] | None = None,
) -> str:
    """Return a hash of the parts that must arrive unchanged, without headers that duebridge sets.

    Header order matters only within a repeated name, since some brokers sort headers by name.
    Header values are compared as text, since some brokers carry only bytes. A broker without
    properties delivers `content_type` as the header `content-type`: pass that header if it was set.
    Properties that are None are ignored; their order does not matter.
    """
    digest = sha256()
    for part in (body, key):
        digest.update(b"-" if part is None else b"+%d:" % len(part) + part)
    for name, value in sorted(headers, key=itemgetter(0)):
        if name not in RESERVED and not name.startswith(RESERVED_PREFIX):
            digest.update(f"{name}={_as_text(value)};".encode())
    for name, given in sorted((properties or {}).items()):
        if given is not None:
            digest.update(f"@{name}={given};".encode())
    return digest.hexdigest()


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value).lower() if isinstance(value, bool) else str(value)
