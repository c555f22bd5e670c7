"""One shard of a delay store: one method per script, replies turned into values.

No method waits for anything but its reply. Instants and durations are ms. Every method raises
`StoreUnavailable` when the store is away (for a method that says it is not repeated: at once; the
others are asked again for `repeat_for_s`), and `StoreFull`, `StoreUnfit` or `StoreError`.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from duebridge.envelope import Envelope
from duebridge.store.codec import pack
from duebridge.store.connection import Argument, Connection
from duebridge.store.keys import Shard
from duebridge.store.packed import PackedRow, schedule_arguments
from duebridge.store.poll import NONE, Poll
from duebridge.store.replies import (
    Claim,
    Counted,
    Demoted,
    Entry,
    Found,
    Lifted,
    Page,
    Reclaimed,
    Scheduled,
    Settled,
    Stale,
    Stats,
    read_claim,
    read_entry,
    read_page,
    read_reply,
    read_scheduled,
    read_text,
    read_words,
)
from duebridge.store.scripts import script
from duebridge.store.transitions import Burial, Remembered, Retry

MAX_BATCH = 1000  # envelopes in one call: lua/shared/batch.lua
MAX_BATCH_BYTES = 4 * 1024 * 1024
JOURNAL_CAP_BYTES = 64 * 1024 * 1024
READY_FULL = 10_000
KEEP_ANSWER_FACTOR = 2  # of the time that a client repeats a call
LEAST_KEPT_ANSWER_MS = 60_000
NONCE_BYTES = 8
ERROR_BYTES = 1024


class DelayStore:
    """The envelopes of one shard. All truth is in the store; an instance holds none of it."""

    def __init__(
        self,
        connection: Connection,
        shard: Shard,
        *,
        has_dead_letter: bool = False,
        cold_tier_ms: int = 0,
        journal_cap_bytes: int = JOURNAL_CAP_BYTES,
        repeat_for_s: float = 0.0,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Work on `shard`; `now_ms` replaces the server's clock and is for tests only.

        `cold_tier_ms` is how long a tombstone lives, 0 on a route without a cold tier.
        """
        self.shard = shard
        self._connection = connection
        self._keys = shard.keys()
        self._dead_score = "" if has_dead_letter else "+inf"
        self._cold_tier_ms = cold_tier_ms
        self._journal_cap_bytes = journal_cap_bytes
        self._repeat_for_s = repeat_for_s
        self._keep_ms = max(LEAST_KEPT_ANSWER_MS, int(KEEP_ANSWER_FACTOR * repeat_for_s * 1000))
        self._now_ms = now_ms

    def next(self) -> Poll:
        """Return what there is to do now and next; changes nothing."""
        return read_reply(self._run("next"), Poll)

    def schedule(
        self,
        envelopes: Sequence[Envelope],
        *,
        max_delay_ms: int,
        remember_ms: int = 0,
        replace: bool = False,
        generations: Sequence[int] = (),
    ) -> list[Scheduled]:
        """Accept envelopes, all in one step: each is pending until due, or says why it is not.

        At most `MAX_BATCH`, of `MAX_BATCH_BYTES` in all. `remember_ms` is the route's, for
        envelopes that say nothing of their own; `generations` are those of rows from the cold
        tier, which obey tombstones.
        """
        is_repeatable = self._repeat_for_s > 0
        call_id = secrets.token_bytes(12) if is_repeatable else b""
        pairs = zip(envelopes, generations or [0] * len(envelopes), strict=True)
        arguments = schedule_arguments(
            [_row(envelope, remember_ms, generation) for envelope, generation in pairs],
            max_delay_ms=max_delay_ms,
            replace=replace,
            call_id=call_id,
            keep_ms=self._keep_ms,
        )
        return read_scheduled(self._run("schedule", *arguments), len(envelopes))

    def promote(self, limit: int = MAX_BATCH, ready_full: int = READY_FULL) -> tuple[Poll, int]:
        """Make due envelopes ready; returns how many."""
        return read_reply(self._run("promote", limit, ready_full), Counted)

    def claim(
        self,
        limit: int,
        lease_ms: int,
        *,
        limit_bytes: int = MAX_BATCH_BYTES,
        alone: bool = False,
        promote: int = 0,
        token: bytes = b"",
    ) -> Claim:
        """Lease ready envelopes to the caller alone until the lease ends; `alone`: one suspect.

        Makes up to `promote` due envelopes ready first. `token`: of a claim of the caller's, to go
        on with it. Never repeated: after a lost reply the leases run out.
        """
        source = "suspect" if alone else "ready"
        name = token or secrets.token_bytes(NONCE_BYTES)
        arguments = (source, limit, limit_bytes, lease_ms, name, self._dead_score)
        return read_claim(self._run_once("claim", *arguments, promote, READY_FULL))

    def ack(
        self,
        token: bytes,
        ids: Sequence[str],
        remembered: Sequence[Remembered] = (),
        *,
        shunted: bool = False,
    ) -> Settled:
        """Forget envelopes that the broker confirmed; `shunted`: as dead letters.

        `token` is the claim's, or one for each id, joined: several claims share a call.
        """
        state = "dead" if shunted else "unack"
        flat = [part for each in remembered for part in (each.place + 1, *each[1:])]
        return self._settle("ack", state, token, len(ids), *ids, *flat)

    def retry(
        self, token: bytes, retries: Sequence[Retry], *, target_failed: bool = False
    ) -> Settled:
        """Put envelopes back until their delay is over; `target_failed` holds the route."""
        arguments: list[Argument] = [token, int(target_failed), len(retries)]
        for each in retries:
            arguments += (each.id, each.delay_ms, int(each.is_failure), int(each.is_unsure))
            arguments.append(_cut(each.error))
        return self._settle("retry", *arguments)

    def release(self, token: bytes, ids: Sequence[str]) -> Settled:
        """Give back at once what never reached a broker's client; nothing is counted."""
        return self._settle("release", token, len(ids), *ids)

    def bury(self, token: bytes, burials: Sequence[Burial]) -> Settled:
        """End envelopes: they are dead, for a shunt to take to the dead-letter target."""
        arguments: list[Argument] = [token, self._dead_score, len(burials)]
        for each in burials:
            arguments += (each.id, int(each.reason), int(each.is_failure), int(each.is_unsure))
            arguments.append(_cut(each.error))
        return self._settle("bury", *arguments)

    def reclaim(
        self, limit: int = MAX_BATCH, *, poison: int = 5, counted: bool = True
    ) -> Reclaimed:
        """Take back envelopes whose lease ran out.

        `counted` is false when the caller itself saw the store away: nobody's expiry then.
        """
        reply = self._run("reclaim", limit, int(counted), poison, self._dead_score)
        return read_reply(reply, Reclaimed)

    def shunt(self, limit: int, lease_ms: int, *, limit_bytes: int = MAX_BATCH_BYTES) -> Claim:
        """Lease dead envelopes whose turn it is; an `ack(shunted=True)` or `postpone` ends it.

        Never repeated: after a lost reply the leases run out.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        return read_claim(self._run_once("shunt", limit, limit_bytes, lease_ms, nonce))

    def postpone(self, token: bytes, ids: Sequence[str], delay_ms: int) -> Settled:
        """End a shunt's lease whose dead letters could not be sent; its turn comes again."""
        return self._settle("postpone", token, delay_ms, len(ids), *ids)

    def replay(self, ids: Sequence[str], delays_ms: Sequence[int] = ()) -> list[str]:
        """Schedule dead envelopes anew; answers `replayed`, `in_flight` or `unknown` for each."""
        pairs = zip(ids, delays_ms or [0] * len(ids), strict=True)
        flat = [part for pair in pairs for part in pair]
        return read_words(self._run("replay", len(ids), *flat), len(ids))

    def drop(self, ids: Sequence[str]) -> list[str]:
        """Delete dead envelopes; answers `dropped`, `in_flight` or `unknown` for each."""
        return read_words(self._run("drop", len(ids), *ids), len(ids))

    def cancel(self, id: str) -> str:  # noqa: A002 - the public name of the field
        """See to it that an envelope is not delivered.

        Answers `cancelled` (it never will be), `in_flight` (it may have been; it is removed as
        soon as no worker holds it), `dead`, `unknown`, or `recorded` for the cold tier.
        """
        call_id = secrets.token_bytes(12)
        reply = self._run("cancel", id, call_id, self._keep_ms, self._cold_tier_ms)
        return read_words(reply, 1)[0]

    def reschedule(self, id: str, due: str, max_delay_ms: int) -> Scheduled:  # noqa: A002
        """Give an envelope another due instant, `+15000` or epoch ms.

        Answers `rescheduled` and the new due; `in_flight`, `dead`, `unknown`, `too_far` and
        `expires_before_due` changed nothing; `recorded` for the cold tier.
        """
        call_id = secrets.token_bytes(12)
        reply = self._run(
            "reschedule", id, due, max_delay_ms, call_id, self._keep_ms, self._cold_tier_ms
        )
        return read_scheduled(reply, 1)[0]

    def demote(self, batch: str, first: int, rows: Sequence[tuple[str, int]]) -> Demoted:
        """Remove rows of which a batch of the cold tier has copies: pairs of id and generation.

        `first` is the place of the first one in the batch, whose rows must come in their order. A
        row that is done is never done again. Where the envelope is not what was copied any more,
        the copy is void from this moment on.
        """
        flat = [part for row in rows for part in row]
        reply = self._run("demote", batch, first, self._cold_tier_ms, len(rows), *flat)
        return read_reply(reply, Demoted)

    def get(self, id: str) -> Entry | None:  # noqa: A002 - the public name of the field
        """Return what the store knows of one envelope; None where it knows nothing."""
        _, state, score, record, flight = read_reply(self._run("get", id), Found)
        return read_entry(id, read_text(state), score, record, flight) if state else None

    def list(
        self,
        state: str,
        *,
        limit: int = 100,
        cursor: tuple[str, int] | None = None,
        due_from_ms: int | None = None,
        due_to_ms: int | None = None,
        limit_bytes: int = MAX_BATCH_BYTES,
    ) -> Page:
        """Return a page of a state in the order of its scores, and the cursor of the next."""
        lower = "-inf" if due_from_ms is None else due_from_ms
        upper = "+inf" if due_to_ms is None else due_to_ms
        after_id, after_score = cursor or ("", "")
        ended_with = "+inf" if after_score == NONE else after_score
        reply = self._run("list", state, lower, upper, after_id, ended_with, limit, limit_bytes)
        return read_page("ready" if state == "suspect" else state, reply)

    def stats(self) -> Stats:
        """Return the counts by state and what is due; changes nothing."""
        return read_reply(self._run("stats"), Stats)

    def forget(self, limit: int = MAX_BATCH) -> tuple[Poll, int]:
        """Drop answers, remembered ids and tombstones whose time is over; returns how many."""
        return read_reply(self._run("forget", limit), Counted)

    def lift(self, generation: int, names: Sequence[str]) -> int:
        """Drop tombstones and void copies, by their `Mark.name`; returns how many.

        A tombstone that was left at `generation` or later stays.
        """
        return read_reply(self._run("lift", generation, len(names), *names), Lifted).dropped

    def _settle(self, name: str, *arguments: Argument) -> Settled:
        reply = self._call(name, arguments, self._repeat_for_s)
        poll, stale = read_reply(reply.value, Stale)
        return Settled(poll, [read_text(each) for each in stale], reply.repeated)

    def _run(self, name: str, *arguments: Argument) -> Any:
        return self._call(name, arguments, self._repeat_for_s).value

    def _run_once(self, name: str, *arguments: Argument) -> Any:
        return self._call(name, arguments, 0.0).value

    def _call(self, name: str, arguments: Sequence[Argument], repeat_for_s: float) -> Any:
        now: Argument = "" if self._now_ms is None else self._now_ms()
        standard = (now, self._journal_cap_bytes)
        return self._connection.run(script(name), self._keys, (*standard, *arguments), repeat_for_s)


def _row(envelope: Envelope, remember_ms: int, generation: int) -> PackedRow:
    packed = pack(envelope)
    return PackedRow(
        envelope.id,
        str(envelope.due),
        "" if envelope.expires is None else str(envelope.expires),
        remember_ms if envelope.remember_ms is None else envelope.remember_ms,
        packed.content_hash,
        generation,
        packed.blob,
    )


def _cut(text: str) -> bytes:
    return text.encode(errors="replace")[:ERROR_BYTES]
