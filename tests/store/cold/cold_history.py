"""Jobs of a cold tier that overlap, stop and die anywhere, beside producers and a worker.

A log in memory stands for the files. Jobs call the store in the order of the real ones, one call a
step. No answer is predicted. Held against the store is what people may see: nothing is handed out
after a cancel, nothing twice, nothing of before an id began anew, and what was accepted comes; what
is due before a hydrate's end is in the store.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, TypeAlias

from duebridge.errors import StoreError
from duebridge.store.cold.notes import ColdNotes, Mark
from duebridge.store.wire.packed_row import pack_row
from duebridge.store.wire.transitions import ScheduleMode
from tests.store.cold.cold_files import FileRow, Files
from tests.support.desk import DAY_MS, LEASE_MS, YEAR_MS, Desk, envelope, of_generation, remembering

HORIZON_MS = 7 * DAY_MS
COLD_LEASE_MS = 60_000
WORDS = 16  # few: some ids are taken for cold and are not
IDS = "xyz"
Job: TypeAlias = Generator[None, None, None]
Key: TypeAlias = tuple[str, bytes]  # id and body


class Died(Exception):
    """A job ends with an error."""


class Event(NamedTuple):
    """What happens next; the numbers say to whom, and how much."""

    kind: str
    one: int = 0
    two: int = 0


@dataclass
class Fate:
    """What became of a life: when it is due, and what people were told of it."""

    due_at_ms: int
    is_ended: bool = False
    is_excused: bool = False
    handed_out: int = 0
    acked: int = 0


@dataclass
class ColdHistory:
    """A shard, its files, and who works on them.

    Without `remember_ms` a job that is killed may bring back what was delivered: a duplicate after
    a fault. What was cancelled stays away nevertheless.
    """

    desk: Desk
    remember_ms: int = YEAR_MS
    files: Files = field(default_factory=Files)
    fates: dict[Key, Fate] = field(default_factory=dict)
    current: dict[str, bytes] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    loading: list[tuple[str, Fate]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.notes = ColdNotes(self.desk.connection, self.desk.shard)
        self.notes.note_first(1)

    # ── producers ───────────────────────────────────────────────────────────────────────────────

    def schedule(self, one: int, two: int) -> None:
        """Far or near, with content of its own or that of before, to replace or not."""
        name = IDS[one % len(IDS)]
        body = self.current.get(name, b"first") if two & 1 else b"%d" % next(self.numbers)
        at = self.desk.clock() + (1000 if two & 2 else 30 * DAY_MS)
        self.put(name, body, at, "replace" if two & 4 else "refuse")

    def put(self, name: str, body: bytes, at: int, mode: ScheduleMode = "refuse") -> None:
        """Schedule it; what is accepted ends what was before."""
        (answer,) = self.desk.schedule(envelope(name, at=at, body=body), mode=mode)
        if answer.status in ("accepted", "replaced"):
            self.end(name)
            self.fates[name, body] = Fate(answer.due_at_ms)
            self.current[name] = body

    def end(self, name: str, *, is_excused: bool = False, but: Fate | None = None) -> None:
        """Nothing of before may be handed out any more, or it may (`is_excused`)."""
        later = [fate for _, fate in self.loading] + [but]
        for (other, _), fate in self.fates.items():
            if other == name and not any(fate is each for each in later):
                fate.is_ended |= not is_excused
                fate.is_excused = True

    def lives(self, name: str) -> bool:
        """Whether what was accepted last is neither delivered nor ended."""
        fate = self.fates.get((name, self.current.get(name, b"")))
        return fate is not None and not (fate.is_ended or fate.is_excused or fate.acked)

    def cancel(self, one: int, two: int) -> None:
        name = IDS[one % len(IDS)]
        answer = self.desk.store.cancel(name)
        assert answer != "unknown" or not self.lives(name), f"{name} lives, and nobody knows it"
        if answer == "recorded":
            for fate in self.loaded_meanwhile(name):
                fate.is_ended = True
        if answer in ("cancelled", "recorded"):
            self.end(name)
        elif answer == "in_flight":
            self.end(name, is_excused=True)

    def move(self, one: int, two: int) -> None:
        name = IDS[one % len(IDS)]
        delay_ms = 1000 if two & 1 else 60 * DAY_MS
        answer = self.desk.store.reschedule(name, f"+{delay_ms}", YEAR_MS)
        assert answer.status != "unknown" or not self.lives(name), f"{name} lives, unknown"
        if answer.status in ("rescheduled", "recorded") and name in self.current:
            self.fates[name, self.current[name]].due_at_ms = answer.due_at_ms
        if answer.status == "recorded":
            for fate in self.loaded_meanwhile(name):
                fate.due_at_ms = min(fate.due_at_ms, answer.due_at_ms)

    def loaded_meanwhile(self, name: str) -> list[Fate]:
        """What jobs have read of an id, and not marked yet."""
        return [fate for other, fate in self.loading if other == name]

    # ── a worker, time, a failover ──────────────────────────────────────────────────────────────

    def deliver(self, one: int, two: int) -> None:
        """Claim what is due, and ack it, or give it back."""
        self.desk.clock.advance(1000)
        self.desk.store.reclaim()
        claim = self.desk.claim_all()
        for each in claim.leased:
            self.handed_out((each.id, each.content.body or b""))
        if one % 4 == 0:
            self.desk.store.release(claim.token, claim.ids)
            return
        for each in claim.leased:
            self.fates[each.id, each.content.body or b""].acked += 1
        self.desk.store.ack(remembering(claim))

    def handed_out(self, key: Key) -> None:
        fate = self.fates[key]
        assert not fate.is_ended, f"{key} is handed out after its end"
        assert not (fate.acked and self.remember_ms), f"{key} is delivered twice"
        assert self.desk.clock() >= fate.due_at_ms, f"{key} is early"
        fate.handed_out += 1

    def pass_time(self, one: int, two: int) -> None:
        self.desk.clock.advance((1000, COLD_LEASE_MS, DAY_MS, 20 * DAY_MS)[one % 4])
        self.desk.store.forget()

    def fail_over(self, one: int, two: int) -> None:
        """Another server has the shard; this one has lost nothing."""
        self.desk.client.hset(self.desk.key("meta"), "master", "another")

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────

    def begin(self, one: int, two: int) -> None:
        made = (self.demote, self.hydrate, self.hydrate, self.load)[one % 4]
        self.jobs.append(made(bool(two & 1)))

    def step(self, one: int, two: int) -> None:
        """Let a job go on for some steps; with an error it is over."""
        if not self.jobs:
            return
        job = self.jobs[one % len(self.jobs)]
        try:
            for _ in range(two + 1):
                next(job)
        except (StopIteration, Died, StoreError):
            self.jobs.remove(job)

    def kill(self, one: int, two: int) -> None:
        if self.jobs:
            self.jobs.remove(self.jobs[one % len(self.jobs)])

    def demote(self, _: bool) -> Job:
        beyond_ms = self.desk.clock() + HORIZON_MS
        yield from self.remove_rest()
        rows: list[FileRow] = []
        for copy in self.copies(f"B{next(self.numbers)}", beyond_ms):
            rows.append(copy)
            yield
        if rows:
            self.files.batches[rows[0].batch] = rows
            yield
            yield from self.remove_rest()

    def copies(self, batch: str, beyond_ms: int) -> Iterator[FileRow]:
        """Read a page of one envelope at a time: one that moves ahead of the reader comes twice."""
        page = self.desk.store.list("pending", limit=1, due_from_ms=beyond_ms)
        while page.cursor:
            (each,) = page.entries
            assert each.record
            assert each.content
            given = (each.record.generation, each.record.due_at_ms, each.content.body or b"")
            yield FileRow(batch, each.id, *given)
            page = self.desk.store.list("pending", limit=1, cursor=page.cursor)

    def remove_rest(self) -> Job:
        for batch in self.files.unfinished():
            rows = sorted(self.files.batches[batch], key=lambda row: (row.id, row.generation))
            for number, row in enumerate(rows):
                done = self.desk.store.demote(batch, number, [(row.id, row.generation)])
                self.files.note_removed(row, done.removed)
                yield
            self.files.removed.add(batch)
            yield

    def load(self, is_shared: bool) -> Job:
        """Rows go to files that never were in the store; ids that live there are its to judge.

        So are ids that went cold after the row had its generation. What was cold under the id
        before ends with the commit. Cancels and moves that are recorded once the row has its
        generation bind it; all else that happens before its mark came before it.
        """
        row = self.loaded(is_shared)
        fate = self.fates[row.id, row.body] = Fate(row.due_at_ms, is_excused=True)
        self.loading.append((row.id, fate))
        yield
        token = self.occupy()
        yield
        is_void = bool(self.desk.store.mark([row.id], row.generation, token))
        self.loading.remove((row.id, fate))
        yield
        copies = [each for each in self.files.rows(known=True) if each.id == row.id]
        yield
        is_void |= row.due_at_ms < self.notes.kept_until()
        if is_void or any(each.generation > row.generation for each in copies):
            is_void = True
            del self.fates[row.id, row.body]
            self.put(row.id, row.body, row.due_at_ms)
            yield
        self.renew(token)
        if not is_void:
            self.commit_loaded(row, fate, copies)
        yield
        self.desk.store.vacate(token)

    def loaded(self, is_shared: bool) -> FileRow:
        """A row of an id that may live, be cold or be new."""
        number = next(self.numbers)
        name = IDS[number % len(IDS)] if is_shared else f"l{number}"
        due_at_ms = self.desk.clock() + 30 * DAY_MS
        body = b"loaded %d" % number
        return FileRow(f"L{number}", name, self.notes.new_generation(), due_at_ms, body)

    def commit_loaded(self, row: FileRow, fate: Fate, copies: Sequence[FileRow]) -> None:
        self.files.note_cold(row)
        self.files.taken |= {*copies}
        self.files.batches[row.batch] = [row]
        self.files.removed.add(row.batch)
        if not fate.is_ended:
            self.end(row.id, but=fate)
            fate.is_excused = False
            self.current[row.id] = row.body

    def hydrate(self, takes_all: bool) -> Job:
        """It may bring back more than it notes."""
        token = self.occupy()
        yield
        noted_ms = self.desk.clock() + HORIZON_MS
        until_ms = noted_ms + takes_all * YEAR_MS
        self.notes.note_hydrating(noted_ms, token)
        yield
        began = self.notes.new_generation()
        yield
        yield from self.remove_rest()
        found = self.files.rows()
        yield  # what is read next may have been left, and used up, since
        marks = list(self.notes.marks())
        yield
        coming = [row for row in found if self.is_to_come(row, marks, until_ms)]
        left: set[FileRow] = set()
        for row in coming:
            if self.bring_back(row, token) in ("conflict", "in_flight"):
                left.add(row)
            yield
        token = self.renew(token, f"T{next(self.numbers)}")
        yield
        self.renew(token)
        void = {(mark.batch, mark.id) for mark in marks if mark.batch}
        gone = [row for row in found if row.due_at_ms < until_ms or row in coming]
        self.files.taken |= {*gone} - left
        self.files.refused |= left
        yield
        self.drop_used(marks, began, gone, void, token)
        yield
        yield from self.sift(token)
        self.notes.note_hydrated(noted_ms, token)
        self.files.note_hydrated(noted_ms)
        yield
        self.desk.store.vacate(token)

    def is_to_come(self, row: FileRow, marks: Sequence[Mark], until_ms: int) -> bool:
        if any(mark.batch == row.batch and mark.id == row.id for mark in marks):
            return False
        moved = any(
            not mark.batch
            and mark.id == row.id
            and 0 < mark.due_at_ms < until_ms
            and mark.cancelled < row.generation <= mark.generation
            for mark in marks
        )
        return moved or row.due_at_ms < until_ms

    def bring_back(self, row: FileRow, token: str) -> str:
        packed = pack_row(envelope(row.id, at=row.due_at_ms, body=row.body), self.remember_ms)
        packed = of_generation(packed, row.generation)
        given = {"max_delay_ms": YEAR_MS, "keeps_answer": False}
        (answer,) = self.desk.store.schedule([packed], lease=token, **given)
        return str(answer.status)

    def drop_used(
        self,
        marks: Sequence[Mark],
        began: int,
        gone: Sequence[FileRow],
        void: set[tuple[str, str]],
        token: str,
    ) -> None:
        rows = self.files.rows(known=True)
        unused = {row.id for row in gone} - {row.id for row in rows}
        copies = {(row.batch, row.id) for row in gone} & void
        copies -= {(row.batch, row.id) for row in rows}
        used = [mark.name for mark in marks if (mark.batch, mark.id) in copies]
        used += [mark.name for mark in marks if not mark.batch and mark.id in unused]
        self.desk.store.lift(began, used, token)

    def sift(self, token: str) -> Job:
        began = self.notes.new_generation()
        marks = list(self.notes.marks())
        yield
        self.desk.store.begin_sift(WORDS, began, token)
        yield
        self.renew(token)
        rows = self.files.rows(known=True)
        yield
        self.desk.store.mark([row.id for row in rows], None, token)
        yield
        floor = min([began, *(row.generation for row in rows)])
        self.desk.store.end_sift(floor, token)
        yield
        needed = {row.id for row in rows} | {f"{row.batch}/{row.id}" for row in rows}
        unused = [mark.name for mark in marks if mark.name[1:] not in needed]
        self.desk.store.lift(began, unused, token)
        yield

    def occupy(self) -> str:
        token = f"T{next(self.numbers)}"
        if not self.desk.store.occupy(token, COLD_LEASE_MS, "a job").did:
            raise Died
        return token

    def renew(self, token: str, to: str = "") -> str:
        if not self.desk.store.occupy(to or token, COLD_LEASE_MS, "a job", token).did:
            raise Died
        return to or token

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def happen(self, event: Event) -> None:
        getattr(self, event.kind)(event.one, event.two)

    def finish(self) -> None:
        """Let all leases end, hydrate twice whatever is cold, and deliver everything."""
        self.desk.clock.advance(max(LEASE_MS, COLD_LEASE_MS))
        for _ in range(2):
            for _ in self.hydrate(True):
                pass
        self.desk.clock.advance(61 * DAY_MS)
        for _ in range(3):
            self.deliver(1, 0)
        for key, fate in self.fates.items():
            assert fate.acked or fate.is_excused, f"{key} is lost"
        assert not self.files.rows(known=True)
        assert not list(self.notes.marks()), "no row is cold, and marks are left"
        self.desk.check()
