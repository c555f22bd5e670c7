"""One claim on its way to a broker: what it publishes, to which targets, and how much that is."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from duebridge.envelope import Target
from duebridge.headers import cause_headers, dead_letter_headers, delivery_headers
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.receipt import shown_id
from duebridge.store.wire.leases import Claim, DamagedEnvelope, LeasedEnvelope
from duebridge.store.wire.record import decoded_size
from duebridge.store.wire.transitions import NO_TAG, HoldClock, SetAside
from duebridge.worker.decide import DeliveryContext, RetryRules, is_past_hold, set_aside
from duebridge.worker.lanes.lane import Lane, OutgoingBatch, TargetGroup
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.lanes.window import Load
from duebridge.worker.shard import ShardView


class Batch(NamedTuple):
    """One claim, published only if it can still be settled within its lease.

    `outgoing` is published, then damaged dead letters; `damaged` of a claim is not.
    """

    view: ShardView
    lane: Lane
    token: bytes
    outgoing: OutgoingBatch
    damaged: Sequence[DamagedEnvelope]
    must_start_by: float

    @property
    def is_letter(self) -> bool:
        """Whether its messages are dead letters."""
        return self.outgoing.is_letter

    @property
    def has_any(self) -> bool:
        """Whether it publishes or settles anything."""
        return bool(self.outgoing.load.envelopes or self.damaged)

    @property
    def messages(self) -> int:
        """The number of messages that it publishes."""
        return self.outgoing.load.envelopes + len(self.damaged) * self.is_letter

    @property
    def leased(self) -> list[LeasedEnvelope]:
        """The envelopes that it publishes, group by group."""
        return [leased for group in self.outgoing.groups for leased in group.leased]

    @property
    def is_of_one_broker(self) -> bool:
        """Whether the route's broker is that of every target; else the route has moved since."""
        broker = self.view.target.broker
        return self.is_letter or all(
            each.health.target.broker == broker for each in self.outgoing.groups
        )

    @property
    def ids(self) -> list[str]:
        """The ids of everything that it holds."""
        return [*(each.id for each in self.leased), *(each.id for each in self.damaged)]

    def outcomes_of_damaged(self, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Return the outcomes of damaged dead letters, which are published last."""
        return outcomes[self.outgoing.load.envelopes :]

    def deliveries(self) -> list[Delivery]:
        """Return its messages."""
        route = self.view.route.name
        own = self.view.target
        if not self.is_letter:
            return [
                delivery(leased, route, group.health.target)
                for group in self.outgoing.groups
                for leased in group.leased
            ]
        letters = self.outgoing.groups[0].health.target
        return [
            *(dead_letter(leased, route, own, letters) for leased in self.leased),
            *(damaged_letter(damaged, route, own, letters) for damaged in self.damaged),
        ]


def delivery(leased: LeasedEnvelope, route: str, target: Target) -> Delivery:
    """Return the delivery of an envelope, with the bridge's headers."""
    content = leased.content
    headers = delivery_headers(leased, route)
    return Delivery(leased.id, target, content.body, content.key, headers, content.properties)


def dead_letter(leased: LeasedEnvelope, route: str, target: Target, letters: Target) -> Delivery:
    """Return the original message to `letters`, plus `x-dlq-*` headers that say why it is dead."""
    content = leased.content
    headers = dead_letter_headers(leased, route, content.target or target)
    return Delivery(
        id=leased.id,
        target=letters,
        body=content.body,
        key=content.key,
        headers=headers,
        properties=content.properties,
        is_dead_letter=True,
    )


def damaged_letter(
    damaged: DamagedEnvelope, route: str, target: Target, letters: Target
) -> Delivery:
    """Return a dead letter whose body is the raw, unreadable record, for manual inspection."""
    headers = (
        ("x-message-id", shown_id(damaged.id)),
        *cause_headers(Reason.POISON.word, type(damaged.error).__name__, str(damaged.error)),
        ("x-dlq-route", route),
        ("x-dlq-target", str(target)),
    )
    return Delivery(damaged.id, letters, damaged.data, headers=headers, is_dead_letter=True)


def of_another_broker(target: Target, broker: str) -> Outcome:
    """Return the outcome of a delivery whose own target is of the broker that its route left."""
    text = f"expected a target of broker {broker!r}, to which the route has moved; got {target}"
    return Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "OtherBroker", text)


class Admission(NamedTuple):
    """A claim, split by target: the envelopes to publish, and those to set aside."""

    groups: list[TargetGroup]
    aside: list[tuple[TargetHealth, list[SetAside]]]


def admit(
    lane: Lane, target: Target, claim: Claim, rules: RetryRules, now_ms: int, *, has_room: bool
) -> Admission:
    """Split claimed envelopes by target, and each group by the target's health and room.

    `has_room`: the claim had room for `target` reserved. The caller locks the lane.
    """
    admission = Admission([], [])
    for to, some, load in _by_target(claim, target):
        health = lane.targets.of(to)
        if health.mode == "up":
            is_reserved = has_room and to == target
            window, claimants = health.window, lane.claimants
            room = window.left(claimants) if is_reserved else window.room(claimants)
            _admit_up(admission, health, some, load, room)
        else:
            context = DeliveryContext(now_ms, health.tag)
            _admit_held(admission, health, some, context, rules, may_probe=lane.may_probe(health))
    return admission


def _by_target(claim: Claim, target: Target) -> list[tuple[Target, list[LeasedEnvelope], Load]]:
    found: dict[Target, list[LeasedEnvelope]] = {}
    if all(each.content.target is None for each in claim.leased):
        whole = Load(len(claim.leased), claim.decoded_bytes)
        return [(target, claim.leased, whole)] if claim.leased else []
    for each in claim.leased:
        found.setdefault(each.content.target or target, []).append(each)
    return [(to, some, load_of(some)) for to, some in found.items()]


def _admit_up(
    admission: Admission, health: TargetHealth, leased: list[LeasedEnvelope], load: Load, room: Load
) -> None:
    is_cut = load.within(room) != load
    if is_cut:
        leased, rest = _split(leased, room)
        admission.aside.append((health, _until_room(health, rest)))
        load = load_of(leased)
    if leased:
        admission.groups.append(TargetGroup(health, leased, load, is_cut=is_cut))


def _admit_held(
    admission: Admission,
    health: TargetHealth,
    leased: list[LeasedEnvelope],
    context: DeliveryContext,
    rules: RetryRules,
    *,
    may_probe: bool,
) -> None:
    """Give those past their hold a last try; else let one try the target when it is time."""
    last_tries = [each for each in leased if is_past_hold(each, rules, context.now_ms)]
    waiting = [each for each in leased if not is_past_hold(each, rules, context.now_ms)]
    tried, rest = _split(last_tries, health.window.room())
    aside = _until_room(health, rest)
    is_probe = may_probe and not tried and bool(waiting)
    if is_probe:
        tried, waiting = waiting[:1], waiting[1:]
    if tried:
        admission.groups.append(TargetGroup(health, tried, load_of(tried), is_probe))
    clock: HoldClock = "start" if health.is_at_fault else "keep"
    aside += [set_aside(each, rules, context, clock, None) for each in waiting]
    if aside:
        admission.aside.append((health, aside))


def _until_room(health: TargetHealth, leased: Iterable[LeasedEnvelope]) -> list[SetAside]:
    delay_ms = round(health.window.half_settles_in_s() * 1000)
    return [SetAside(id=each.id, delay_ms=delay_ms, tag=NO_TAG) for each in leased]


def _split(
    leased: list[LeasedEnvelope], room: Load
) -> tuple[list[LeasedEnvelope], list[LeasedEnvelope]]:
    """Split envelopes into those that fit into a room, and the rest; any room fits the first."""
    size, count = 0, 0
    for each in leased[: room.envelopes]:
        size += decoded_size(each.record.blob)
        if count and size > room.size_bytes:
            break
        count += 1
    return leased[:count], leased[count:]


def load_of(leased: Iterable[LeasedEnvelope]) -> Load:
    """Return the number and decoded size of the envelopes."""
    sizes = [decoded_size(each.record.blob) for each in leased]
    return Load(len(sizes), sum(sizes))
