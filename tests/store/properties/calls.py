"""Every call that the state machine makes: how the store is asked, and what the model says to it.

A change of what a script takes or answers is a change of one function here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.leases import Claim, LeasedEnvelope
from duebridge.store.wire.packed_row import pack_row
from duebridge.store.wire.replies import SettleReply
from duebridge.store.wire.transitions import Ack, Postponement, ScheduleMode, SetAside
from tests.store.properties.ledger import Ledger, Story
from tests.store.properties.lives import Content
from tests.store.properties.model import POISON, Model
from tests.support.desk import LEASE_MS, YEAR_MS, burial, envelope, of_generation, retrying


@dataclass
class Held:
    """What a worker has of one claim or shunt; `heard` is what the broker said of each."""

    token: bytes
    stories: dict[str, Story]
    leased: Sequence[LeasedEnvelope]
    heard: dict[str, str] = field(default_factory=dict)

    def part(self, mask: int) -> list[str]:
        """Return some of the ids; all of them where the mask has none."""
        ids = list(self.stories)
        return [name for n, name in enumerate(ids) if mask >> n & 1] or ids

    def acks(self, ids: Sequence[str]) -> list[Ack]:
        """Acks of some of the ids, with what is remembered."""
        records = {each.id: each.record for each in self.leased}
        return [
            Ack(name, self.token, records[name].remember_ms, records[name].content_hash)
            for name in ids
        ]


class Call(NamedTuple):
    """One request. `told` tells the ledger of an answer, and returns what the caller makes of it.

    `expect` gets the call's number and the answer, of which it takes no more than a token.
    """

    name: str
    ask: Callable[[DelayStore], Any]
    expect: Callable[[Model, str, Any], Any]
    read: Callable[[Any], Any] = lambda answer: answer
    told: Callable[[Ledger, Any], Any] = lambda ledger, answer: None
    is_repeated: bool = True
    is_settling: bool = False


def schedule(given: Sequence[tuple[str, Content]], replace: bool) -> Call:
    def told(ledger: Ledger, answer: Any) -> None:
        for (name, _), (status, due) in zip(given, answer, strict=True):
            ledger.scheduled(name, status, due)

    return _schedule(given, replace, (), told)


class Copy(NamedTuple):
    """What a batch of the cold tier has of an envelope, from before it leaves the store."""

    batch: str
    id: str
    generation: int
    version: int
    content: Content


def demote(copy: Copy, rows: list[Copy]) -> Call:
    """Remove the envelope; `rows` gets the copy if it is the one that counts from then on."""

    def told(ledger: Ledger, answer: Any) -> None:
        if answer.removed and copy not in rows:
            rows.append(copy)
            ledger.stories[copy.id].is_ended = True

    return Call(
        "demote",
        lambda store: store.demote(copy.batch, 0, [(copy.id, copy.generation)]),
        lambda model, *_: model.demote(copy.batch, [(copy.id, copy.version)]),
        lambda answer: answer[1:],
        told,
        is_settling=True,
    )


def hydrate(id: str, content: Content, generation: int, row: int) -> Call:
    def told(ledger: Ledger, answer: Any) -> None:
        ledger.hydrated(row, answer[0].status)
        ledger.scheduled(id, *answer[0])

    return _schedule([(id, content)], False, (generation,), told)


def _schedule(
    given: Sequence[tuple[str, Content]],
    replace: bool,
    generations: Sequence[int],
    told: Callable[[Ledger, Any], None],
) -> Call:
    envelopes = [_envelope(*each) for each in given]
    rows = [
        of_generation(pack_row(envelope, 0), generation)
        for envelope, generation in zip(envelopes, generations or [0] * len(given), strict=True)
    ]

    mode: ScheduleMode = "replace" if replace else "refuse"

    def read(answer: Any) -> list[tuple[str, int | None]]:
        known = ("accepted", "replaced", "duplicate")
        return [(status, due if status in known else None) for status, due in answer]

    return Call(
        "schedule",
        lambda store: store.schedule(rows, max_delay_ms=YEAR_MS, mode=mode),
        lambda model, number, _: model.schedule_batch(given, replace, generations, number),
        read,
        told,
    )


def _envelope(id: str, content: Content) -> Any:
    options: dict[str, Any] = {"body": bytes([content.body])}
    if content.keep is not None:
        options["expires"] = f"{content.keep}ms"
    if content.remember:
        options["remember"] = f"{content.remember}ms"
    if content.at is not None:
        return envelope(id, at=content.at, **options)
    return envelope(id, f"{content.delay}ms", **options)


def cancel(id: str, rows: Sequence[int]) -> Call:
    def told(ledger: Ledger, answer: str) -> None:
        ledger.cancelled(id, answer)
        if answer == "recorded":
            ledger.bound(rows)

    return Call(
        "cancel",
        lambda store: store.cancel(id),
        lambda model, number, _: model.cancel(id, number),
        told=told,
    )


def reschedule(id: str, delay: int) -> Call:
    return Call(
        "reschedule",
        lambda store: store.reschedule(id, f"+{delay}", YEAR_MS),
        lambda model, number, _: model.reschedule_call(id, delay, number),
        told=lambda ledger, answer: ledger.moved(id, *answer),
    )


def replay(id: str, delay: int) -> Call:
    return Call(
        "replay",
        lambda store: store.replay([id], [delay]),
        lambda model, *_: [model.replay(id, delay)],
        told=lambda ledger, answer: ledger.operated(id, answer[0], ledger.now + delay),
    )


def drop(id: str) -> Call:
    return Call(
        "drop",
        lambda store: store.drop([id]),
        lambda model, *_: [model.drop(id)],
        told=lambda ledger, answer: ledger.operated(id, answer[0], ledger.now),
    )


def promote(limit: int) -> Call:
    return Call(
        "promote", lambda store: store.promote(limit)[1], lambda model, *_: model.promote(limit)
    )


def resume() -> Call:
    return Call("resume", lambda store: store.resume()[1], lambda model, *_: model.resume())


def reclaim(counted: bool) -> Call:
    return Call(
        "reclaim",
        lambda store: store.reclaim(poison=POISON, counted=counted)[1],
        lambda model, *_: model.reclaim(counted=counted),
    )


def forget() -> Call:
    return Call("forget", lambda store: store.forget()[1], lambda model, *_: model.forget())


def claim(limit: int, *, alone: bool, promote: int) -> Call:
    def expect(model: Model, _: str, answer: Claim) -> list[str]:
        ids = model.claim(limit, LEASE_MS, alone=alone, promote=promote)
        model.hold(ids, answer.token)
        return ids

    def told(ledger: Ledger, answer: Claim) -> Held:
        leased = answer.leased
        stories = {each.id: ledger.handed_out(each.id, each.flight.attempt) for each in leased}
        return Held(answer.token, stories, leased)

    return Call(
        "claim",
        lambda store: store.claim(limit, LEASE_MS, alone=alone, promote=promote),
        expect,
        lambda answer: answer.ids,
        told,
        is_repeated=False,
    )


def shunt(limit: int) -> Call:
    def expect(model: Model, _: str, answer: Claim) -> list[str]:
        ids = model.shunt(limit, LEASE_MS)
        model.hold(ids, answer.token)
        return ids

    def told(ledger: Ledger, answer: Claim) -> Held:
        until = ledger.now + LEASE_MS
        stories = {each.id: ledger.shunting(each.id, until) for each in answer.leased}
        return Held(answer.token, stories, answer.leased)

    return Call(
        "shunt",
        lambda store: store.shunt(limit, LEASE_MS),
        expect,
        lambda answer: answer.ids,
        told,
        is_repeated=False,
    )


def settle(held: Held, ids: Sequence[str], how: str, delay: int) -> Call:
    stories = [held.stories[name] for name in ids]

    def told(_: Ledger, answer: SettleReply) -> None:
        for name, story in zip(ids, stories, strict=True):
            if how == "postpone" and name not in answer.stale:
                story.shunt_until = 0

    return Call(
        how,
        lambda store: _settled(store, held, ids, how, delay),
        lambda model, *_: model.settle(how, held.token, list(ids), delay),
        lambda answer: answer.stale,
        told,
        is_settling=True,
    )


def ack_together(parts: Sequence[tuple[Held, str]]) -> Call:
    """One ack for confirms of several claims."""
    acks = [ack for held, name in parts for ack in held.acks([name])]
    return Call(
        "ack",
        lambda store: store.ack(acks),
        lambda model, *_: [
            stale for held, name in parts for stale in model.settle("ack", held.token, [name], 0)
        ],
        lambda answer: answer.stale,
        is_settling=True,
    )


def _settled(
    store: DelayStore, held: Held, ids: Sequence[str], how: str, delay: int
) -> SettleReply:
    match how:
        case "ack" | "shunted":
            return store.ack(held.acks(ids), shunted=how == "shunted")
        case "postpone":
            letters = [Postponement(name, delay, "E\nx") for name in ids]
            return store.postpone(held.token, letters, "t")
        case "set_aside":
            aside = [
                SetAside(id=name, delay_ms=delay, tag="THETARGT", clock="start", error="E")
                for name in ids
            ]
            return store.set_aside(held.token, aside)
        case "release":
            return store.release(held.token, ids)
        case "bury" | "bury_unsure":
            is_unsure = how == "bury_unsure"
            burials = [burial(name, unsure=is_unsure, error="E\nx") for name in ids]
            return store.bury(held.token, burials)
        case _:
            facts: dict[str, Any] = {"failed": how == "failed", "unsure": how == "unsure"}
            facts["clock"] = "start" if how == "target_failed" else "end"
            retries = [retrying(name, delay_ms=delay, error="E", **facts) for name in ids]
            return store.retry(held.token, retries)
