"""One shard of a delay store: one method per script, replies turned into values.

Instants and durations are ms. Every method raises `StoreUnavailable` when the store is away, and
`StoreFull`, `StoreUnfit` or `StoreError`. While the store is away a call is repeated for
`repeat_for_s`, a call that settles a lease for `settle_for_s`; `claim`, `probe`, `shunt` never.
Too few replicas that confirm a call of `WAITING` count as a store that is away (`Indeterminate`).
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from duebridge.envelope import Envelope
from duebridge.ports.source import LogPosition
from duebridge.store.batching import CallId, answers_of, new_call_id, new_nonce
from duebridge.store.calls.cold_calls import ColdCalls
from duebridge.store.calls.reading_calls import MAX_BATCH_BYTES, ReadingCalls
from duebridge.store.server.connection import Argument
from duebridge.store.wire.aside_page import AsidePage, read_aside
from duebridge.store.wire.leases import Claim, ProbeReply, read_claim, read_probe
from duebridge.store.wire.log_positions import packed_places, packed_primary_ids
from duebridge.store.wire.packed_row import PackedRow, are_remembered, pack_row
from duebridge.store.wire.poll import Poll, Stats
from duebridge.store.wire.record import pack
from duebridge.store.wire.replies import (
    CancelAnswer,
    DoneReply,
    DropAnswer,
    Entry,
    FoundReply,
    HistogramReply,
    KeepReply,
    MoveReply,
    NoteMode,
    NoteName,
    Page,
    ReclaimReply,
    ReplayAnswer,
    RescheduleReply,
    ResumeReply,
    ScheduleReply,
    SettleReply,
    WatchReply,
    read_cancelled,
    read_dropped,
    read_entry,
    read_histogram,
    read_page,
    read_replayed,
    read_reply,
    read_rescheduled,
    read_resumed,
    read_scheduled,
    read_state,
)
from duebridge.store.wire.transitions import (
    CLOCK_WORDS,
    Ack,
    Burial,
    KeptMessage,
    Postponement,
    ReaddressMode,
    Retry,
    ScheduleMode,
    SetAside,
    stored_error,
)

MAX_BATCH = 1000  # envelopes in one call: lua/shared/batch.lua
MOST_EDGES = 501  # of a histogram: lua/histogram.lua
READY_FULL = 10_000
NO_CURSOR = ("", "")
_REPEATABLE: tuple[ScheduleMode, ...] = ("refuse", "hold", "once")  # if every row is remembered


class DelayStore(ColdCalls, ReadingCalls):
    """The envelopes of one shard. All truth is in the store; an instance holds none of it."""

    def next(self) -> Poll:
        """Poll the shard: what there is to do now and next; changes nothing."""
        return read_reply(self._run("next"), Poll)

    def schedule(
        self,
        envelopes: Sequence[Envelope | PackedRow],
        *,
        max_delay_ms: int,
        remember_ms: int = 0,
        mode: ScheduleMode = "refuse",
        keeps_answer: bool = True,
        places: Sequence[LogPosition | None] = (),
        primary_ids: Sequence[str] = (),
        lease: str = "",
        is_repeated: bool = True,
    ) -> list[ScheduleReply]:
        """Accept envelopes: each is pending until due, or its answer says why not.

        At most `MAX_BATCH`, of `MAX_BATCH_BYTES` in all; it is one step unless records of more
        bytes have the ids. `remember_ms` is the route's, for envelopes without one of their own; a
        packed row goes as it is. `mode` says what becomes of an id that is known:

        - `refuse`: one that lives is a `duplicate`, or with other content a `conflict`; one that is
          remembered answers what became of it, or begins a new life with other content.
        - `hold`: the same, but other content under a remembered one is a `conflict`, too. What was
          cancelled while it was cold answers `cancelled` as long, whatever the content.
        - `once`: as `refuse`, for ids that nothing else ever has, such as places in a log: what was
          cancelled under one while it was cold answers `cancelled`.
        - `reopen`: as `refuse`, but a remembered one begins a new life with any content.
        - `replace`: as `reopen`, and other content takes over one that lives.
        - `replace_living`: the latter only, so that a job that is repeated brings nothing back.

        A repeat after a lost reply changes nothing and answers as the first call did. Bulk loads
        give `keeps_answer=False`, since kept answers would fill the store: where a repeat is
        harmless anyway (nothing is replaced and each row is remembered, or each has a place) it may
        answer `duplicate`. `places`, one for each envelope, are where logs have them
        (`store.wire.log_positions`). `primary_ids`, one for each envelope, are the ids in flight
        that the envelopes replace under alternate ids: a later replacement or cancel of the primary
        id reaches the envelope. `is_repeated` is whether to repeat it while the store is away.
        """
        rows = [
            given if isinstance(given, PackedRow) else pack_row(given, remember_ms)
            for given in envelopes
        ]
        if len(places) not in (0, len(rows)):
            raise ValueError(f"expected a place for each of {len(rows)} envelopes, or none")
        is_found = (mode in _REPEATABLE and are_remembered(rows)) or (places and all(places))
        is_kept = keeps_answer or not is_found

        def call(rest: Sequence[PackedRow]) -> list[ScheduleReply]:
            call_id = new_call_id() if is_kept and self._repeat_for_s > 0 else b""
            fields: Iterable[Any] = chain.from_iterable(rest)
            standard = (max_delay_ms, mode, call_id, self._keep_ms, len(rest))
            placed = packed_places(places[len(rows) - len(rest) :])
            beside = packed_primary_ids(primary_ids[len(rows) - len(rest) :])
            ids = [row.id for row in rest]
            ending = (placed, beside, lease, self._cold_tier_ms)
            whole = (*standard, *fields, *ending)
            reply = self._run("schedule", *whole, ids=ids, is_repeated=is_repeated)
            return read_scheduled(reply, len(rest))

        return [*answers_of(rows, call)]

    def promote(self, limit: int = MAX_BATCH, ready_full: int = READY_FULL) -> tuple[Poll, int]:
        """Make due envelopes ready; return how many."""
        return read_reply(self._run("promote", limit, ready_full), MoveReply)

    def claim(
        self,
        limit: int,
        lease_ms: int,
        *,
        limit_bytes: int = MAX_BATCH_BYTES,
        decoded_bytes: int = MAX_BATCH_BYTES,
        alone: bool = False,
        promote: int = 0,
        token: bytes = b"",
    ) -> Claim:
        """Lease ready envelopes to the caller until the lease ends; `alone`: one suspect.

        Makes up to `promote` due envelopes ready first. `token` adds to the caller's own claim.
        What does not fit into `decoded_bytes`, but for the first, stays encoded: the surplus.
        Never repeated: after a lost reply the leases run out.
        """
        source = "suspect" if alone else "ready"
        standard = (source, limit, limit_bytes, lease_ms, token or new_nonce(), self._dead_score)
        reply = self._lease("claim", *standard, promote, READY_FULL)
        return read_claim(reply, decoded_bytes)

    def ack(self, acks: Sequence[Ack], *, shunted: bool = False) -> SettleReply:
        """Delete envelopes that the broker confirmed, of one claim or several.

        `shunted`: as dead letters.
        """
        state = "dead" if shunted else "unack"
        tokens = b"".join([ack.token for ack in acks])
        remembered = [
            part
            for place, ack in enumerate(acks, 1)
            if ack.remember_ms
            for part in (place, ack.remember_ms, ack.content_hash)
        ]
        ids = [ack.id for ack in acks]
        return self._settle("ack", state, tokens, len(ids), *ids, *remembered)

    def retry(self, token: bytes, retries: Sequence[Retry]) -> SettleReply:
        """Put envelopes back until their delay is over."""
        arguments: list[Argument] = [token, len(retries)]
        for retry in retries:
            arguments += (retry.id, retry.delay_ms, int(retry.is_failure), int(retry.is_unsure))
            arguments += (CLOCK_WORDS[retry.clock], stored_error(retry.error))
        return self._settle("retry", *arguments)

    def set_aside(self, token: bytes, aside: Sequence[SetAside]) -> SettleReply:
        """Put envelopes back whose target is held or has no room; counts nothing."""
        arguments: list[Argument] = [token, len(aside)]
        for each in aside:
            arguments += (each.id, each.delay_ms, each.tag, CLOCK_WORDS[each.clock])
            arguments += (int(each.is_unsure), stored_error(each.error))
        return self._settle("set_aside", *arguments)

    def resume(
        self, tag: str = "", limit: int = MAX_BATCH, cursor: tuple[str, str] = NO_CURSOR
    ) -> ResumeReply:
        """Make ready what was set aside for a target, or for any; looks at `limit` retries.

        The reply has the cursor of the next call, None after the last retry.
        """
        return read_resumed(self._run("resume", tag, limit, *cursor, READY_FULL))

    def probe(
        self, tag: str, lease_ms: int, limit: int = MAX_BATCH, cursor: tuple[str, str] = NO_CURSOR
    ) -> ProbeReply:
        """Lease the first live envelope that was set aside for a target; looks at `limit` retries.

        Never repeated: after a lost reply the lease runs out.
        """
        arguments = (tag, limit, *cursor, lease_ms, new_nonce(), self._dead_score)
        return read_probe(self._lease("probe", *arguments))

    def release(self, token: bytes, ids: Sequence[str]) -> SettleReply:
        """Give back at once envelopes that never reached a broker's client; nothing is counted."""
        return self._settle("release", token, len(ids), *ids)

    def bury(self, token: bytes, burials: Sequence[Burial]) -> SettleReply:
        """Make envelopes dead; a shunt takes them to the dead-letter target."""
        arguments: list[Argument] = [token, self._dead_score, len(burials)]
        for burial in burials:
            arguments += (burial.id, int(burial.reason))
            arguments += (int(burial.is_failure), int(burial.is_unsure), stored_error(burial.error))
        return self._settle("bury", *arguments)

    def reclaim(
        self, limit: int = MAX_BATCH, *, poison: int = 5, counted: bool = True
    ) -> ReclaimReply:
        """Take back envelopes whose lease ran out.

        `counted` is false when the caller itself saw the store away: no expiry counts then.
        """
        reply = self._run("reclaim", limit, int(counted), poison, self._dead_score)
        return read_reply(reply, ReclaimReply)

    def shunt(
        self,
        limit: int,
        lease_ms: int,
        *,
        limit_bytes: int = MAX_BATCH_BYTES,
        decoded_bytes: int = MAX_BATCH_BYTES,
    ) -> Claim:
        """Lease dead envelopes whose next shunt is due; `ack(shunted=True)` or `postpone` ends it.

        Never repeated: after a lost reply the leases run out.
        """
        reply = self._lease("shunt", limit, limit_bytes, lease_ms, new_nonce())
        return read_claim(reply, decoded_bytes)

    def postpone(
        self, token: bytes, postponements: Sequence[Postponement], target: str
    ) -> SettleReply:
        """End a shunt's lease on envelopes whose dead letters `target` did not confirm.

        One that it rejected is kept, unless `readdress` knows another target by now.
        """
        arguments: list[Argument] = [token, target, len(postponements)]
        for each in postponements:
            delay_ms = -1 if each.delay_ms is None else each.delay_ms
            arguments += (each.id, delay_ms, int(bool(each.error)), stored_error(each.error))
        return self._settle("postpone", *arguments)

    def readdress(
        self, target: str, limit: int = MAX_BATCH, *, mode: ReaddressMode = "changed"
    ) -> int:
        """Make due the dead envelopes that wait for another target; return how many.

        `changed` takes those without a target, and those that another target than this one
        rejected; `asked` also those that this one did; `unaddressed` those without a target alone.
        """
        reply = self._run("readdress", target, mode, limit)
        return read_reply(reply, MoveReply).moved

    def replay(self, ids: Sequence[str], delays_ms: Sequence[int] = ()) -> list[ReplayAnswer]:
        """Schedule dead envelopes again; return the answers for the first of these ids.

        What would be too many bytes for one call is left to the next.
        """
        delays = delays_ms or [0] * len(ids)
        flat = [part for pair in zip(ids, delays, strict=True) for part in pair]
        return read_replayed(self._run("replay", len(ids), *flat, ids=ids), len(ids))

    def keep(self, refused: Sequence[KeptMessage]) -> int:
        """Take in as dead what an intake refused and nobody else has; return how many are new.

        An id that is there is left as it is, so that a repeat keeps nothing twice.
        """
        arguments: list[Argument] = [self._dead_score, len(refused)]
        for each in refused:
            packed = pack(each.envelope)
            arguments += (each.envelope.id, packed.content_hash, packed.blob)
            arguments += (int(each.reason), stored_error(each.error))
        ids = [each.envelope.id for each in refused]
        return read_reply(self._run("keep", *arguments, ids=ids), KeepReply).kept

    def drop(self, ids: Sequence[str]) -> list[DropAnswer]:
        """Delete dead envelopes; return the answers for the first ones, as `replay` does."""
        return read_dropped(self._run("drop", len(ids), *ids, ids=ids), len(ids))

    def cancel(
        self,
        id: str,  # noqa: A002 - the public name of the field
        place: LogPosition | None = None,
        call: CallId | None = None,
    ) -> CancelAnswer:
        """Prevent the delivery of an envelope.

        Answers `cancelled` (it will never be delivered), `in_flight` (it may have been; it is
        removed as soon as no worker holds it), `dead`, `unknown`, or `recorded` for the cold tier.
        A `place` that was taken in before answers `unknown` and changes nothing. What a `call`
        of the caller's own has changed, it answers again.
        """
        placed = packed_places([place])
        arguments = (id, *self._call_id(call), self._cold_tier_ms, placed)
        return read_cancelled(self._run("cancel", *arguments, ids=[id]))

    def reschedule(
        self,
        id: str,  # noqa: A002 - the public name of the field
        due: str,
        max_delay_ms: int,
        call: CallId | None = None,
    ) -> RescheduleReply:
        """Give an envelope another due instant, `+15000` or epoch ms.

        Answers `rescheduled` and the new due; `in_flight`, `dead`, `unknown`, `too_far` and
        `expires_before_due` changed nothing; `recorded` for the cold tier. What a `call` of the
        caller's own has changed, it answers again.
        """
        arguments = (id, due, max_delay_ms, *self._call_id(call), self._cold_tier_ms)
        return read_rescheduled(self._run("reschedule", *arguments, ids=[id]))

    def get(self, id: str) -> Entry | None:  # noqa: A002 - the public name of the field
        """Return one envelope; None where the store does not know the id."""
        _, state, score, record, flight = read_reply(self._run("get", id), FoundReply)
        return read_entry(id, read_state(state), score, record, flight) if state else None

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
        """Return a page of a state in the order of its scores, and the cursor of the next page."""
        bounds = due_from_ms, due_to_ms
        return read_page(*self._listed(state, limit, cursor, bounds, limit_bytes))

    def stats(self) -> Stats:
        """Return the counts by state and what is due; changes nothing."""
        return read_reply(self._run("stats"), Stats)

    def histogram(self, edges_ms: Sequence[int]) -> HistogramReply:
        """Count what falls due between instants: `edges_ms` rise, and bucket n is from n to n + 1.

        Pending counts by its due instant, retry by its next try. At most `MOST_EDGES`; it costs
        the server as much with a million envelopes as with one.
        """
        reply = self._run("histogram", len(edges_ms), *edges_ms)
        return read_histogram(reply, max(0, len(edges_ms) - 1))

    def count_aside(self, limit: int, cursor: tuple[str, str] = NO_CURSOR) -> AsidePage:
        """Count what is set aside by target, among `limit` retries; changes nothing."""
        return read_aside(self._run("count_aside", limit, *cursor))

    def forget(self, limit: int = MAX_BATCH) -> tuple[Poll, int]:
        """Drop expired answers, remembered ids and tombstones; return how many."""
        return read_reply(self._run("forget", limit), MoveReply)

    def renew(self) -> bool:
        """Put the counters beyond every number given out, as any writing call does when due."""
        return bool(read_reply(self._run("renew"), DoneReply).did)

    def note(self, name: NoteName, value: int, how: NoteMode = "set", lease: str = "") -> bool:
        """Note how far an outside job has come; `first` keeps an earlier note, `rise` a higher.

        A note of a job of the cold tier is refused without the `lease` that it was given.
        """
        return bool(read_reply(self._run("note", name, value, how, lease), DoneReply).did)

    def watch(self, worker: str, keep_ms: int) -> WatchReply:
        """Take or keep the shard's gauge lease for `keep_ms`; 0 gives it up.

        One worker has it at a time. The reply says whether that is the caller.
        """
        return read_reply(self._run("watch", worker, keep_ms), WatchReply)
