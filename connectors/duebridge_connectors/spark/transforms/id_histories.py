"""The stories of ids with several lives, read event by event, in the store's order.

The counts of `verdict` cannot say which life a cancel ended. These can: a message carries the
instant at which its life began, and the journal has the same instant. Few ids need it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.transforms.own_turns import CLOCKS_DIFFER_MS

_ENDS = ("delivered", "shunted", "dropped")
_CALLED_OFF = ("cancelled", "recorded")
_TAKEN = ("accepted", "replaced", "duplicate")
_READING = "after_cancel boolean, maybe_after_cancel boolean, misdated boolean"


class JournalEvent(NamedTuple):
    """An entry of the journal about an id."""

    kind: str
    at_ms: int
    due_ms: int | None
    attempt: int | None


class ArrivedMessage(NamedTuple):
    """A message that arrived, and what its headers say; None for unknown."""

    begun_ms: int | None
    due_ms: int | None


class CallAnswer(NamedTuple):
    """A receipt: the answer of a call, when the caller had it, and the due instant."""

    answer: str
    at_ms: int | None
    due_ms: int | None


class StoryReading(NamedTuple):
    """The violations in an id's history; `maybe_after_cancel` without certainty."""

    after_cancel: bool
    maybe_after_cancel: bool
    misdated: bool


def read_story(
    events: Sequence[JournalEvent], messages: Sequence[ArrivedMessage], calls: Sequence[CallAnswer]
) -> StoryReading:
    """Judge the history of one id.

    A message of a life that a cancel ended came after the cancel. So did, maybe, one of a life that
    began as a cold copy that had ended: at its due instant, after it. Only receipts can tell that
    from somebody who scheduled the id once more for the very same instant.
    """
    answers = {call.answer for call in calls}
    story = _Story(is_told="cancelled" in answers and "in_flight" not in answers)
    for event in [*_straight_to_cold(events, calls), *events]:
        story.enter(event)
    begun = {message.begun_ms for message in messages}
    last = _last_word(calls)
    is_off = last is not None and last.answer in _CALLED_OFF
    came_back = bool(begun & story.brought_back)
    after_call = _most_after(begun & story.out_of_cold, last)
    dues = story.dues | {call.due_ms for call in calls}
    return StoryReading(
        after_cancel=bool(begun & story.revoked)
        or (came_back and is_off)
        or after_call > CLOCKS_DIFFER_MS,
        maybe_after_cancel=(came_back and last is None) or 0 < after_call <= CLOCKS_DIFFER_MS,
        misdated=any(each.due_ms is not None and each.due_ms not in dues for each in messages),
    )


def _last_word(calls: Iterable[CallAnswer]) -> CallAnswer | None:
    """Return the last receipt, if any tells of a cancel: what else was called is told then too."""
    told = [call for call in calls if call.answer in _TAKEN or _is_cancel(call)]
    if not any(_is_cancel(call) for call in told):
        return None
    return max(told, key=lambda call: (call.at_ms or 0, call.answer in _TAKEN))


def _straight_to_cold(
    events: Iterable[JournalEvent], calls: Iterable[CallAnswer]
) -> list[JournalEvent]:
    """Return the demote of what was accepted as a cold row: the journal has it once it comes back.

    Receipts tell: the store accepted it well before the journal's first entry of a begin.
    """
    begun = min((event.at_ms for event in events if event.kind == "accepted"), default=None)
    told = [
        JournalEvent("demoted", call.at_ms, call.due_ms, None)
        for call in calls
        if call.answer in _TAKEN and call.at_ms is not None
        if begun is not None and call.at_ms < begun - CLOCKS_DIFFER_MS
    ]
    return [max(told, key=lambda event: event.at_ms)] if told else []


def _is_cancel(call: CallAnswer) -> bool:
    return call.answer == "cancelled" or (call.answer == "recorded" and call.due_ms is None)


def _most_after(begun: Iterable[int | None], last: CallAnswer | None) -> int:
    """Return the ms from a recorded cancel to the beginning of the latest of these lives."""
    if last is None or last.answer != "recorded" or last.at_ms is None:
        return 0
    return max((at_ms - last.at_ms for at_ms in begun if at_ms is not None), default=0)


class _Story:
    """What is known of an id while its events are read."""

    def __init__(self, *, is_told: bool) -> None:
        """Take a cancel after an attempt for certain if the receipts tell so."""
        self._is_told = is_told
        self.revoked: set[int | None] = set()  # begins of lives that a cancel ended
        self.brought_back: set[int | None] = set()  # begins of lives that had ended while cold
        self.out_of_cold: set[int | None] = set()  # and of all that came where a cold copy was
        self.dues: set[int | None] = set()
        self._here: JournalEvent | None = None
        self._cold: set[int | None] = set()  # due instants of copies that may return
        self._ended: set[int | None] = set()  # and of those that may not
        self._was_cold = False

    def enter(self, event: JournalEvent) -> None:
        self.dues.add(event.due_ms)
        if event.kind == "accepted":
            self._begin(event)
        elif event.kind == "replaced":
            self._here = event
        elif event.kind in ("rescheduled", "replayed") and self._here is not None:
            self._here = self._here._replace(due_ms=event.due_ms)
        elif event.kind == "demoted":
            self._cold, self._here, self._was_cold = {event.due_ms}, None, True
        elif event.kind == "cancelled":
            self._cancel(event)
        elif event.kind in _ENDS:
            self._here = None

    def _begin(self, event: JournalEvent) -> None:
        """Begin a life: of the cold copy if it is due when that was, else instead of it."""
        if event.due_ms in self._ended:
            self.brought_back.add(event.at_ms)
        if self._cold:
            self.out_of_cold.add(event.at_ms)
        self._ended |= self._cold - {event.due_ms}
        self._cold, self._here = set(), event

    def _cancel(self, event: JournalEvent) -> None:
        if self._here is not None and (self._is_told or not event.attempt):
            self.revoked.add(self._here.at_ms)
        if self._was_cold:
            self._ended |= self._cold | {event.due_ms}
        self._cold, self._here = set(), None


def read_stories(
    suspects: DataFrame, journal: DataFrame, arrived: DataFrame, receipts: DataFrame | None
) -> DataFrame:
    """Return a row for each suspect: route, id, and the fields of a `StoryReading`."""
    order, at_ms = F.struct("sequence", "position"), F.unix_millis("at").alias("at_ms")
    begun = F.unix_millis("scheduled_at").alias("begun_ms")
    answer = F.coalesce("status", F.lit("accepted")).alias("answer")
    entry = F.struct(order, "kind", at_ms, _due(), "attempt")
    found = _with_list(suspects, suspects, _told(journal, "position"), "events", entry)
    came = _told(arrived, "scheduled_at", "header_due_ms")
    message = F.struct(begun, "header_due_ms")
    found = _with_list(found, suspects, came, "messages", message)
    if receipts is None:
        found = found.withColumn("calls", F.array())
    else:
        call = F.struct(answer, at_ms, _due())
        found = _with_list(found, suspects, _told(receipts, "status", "at"), "calls", call)
    read = F.udf(_read_row, _READING, useArrow=False)("events", "messages", "calls")
    return found.select("route", "id", read.alias("reading")).select("route", "id", "reading.*")


def _told(rows: DataFrame, *names: str) -> DataFrame:
    """Return rows with these columns, null where there is none."""
    missing = {
        "position": F.lit(0),
        "status": F.lit(None).cast("string"),
        "at": F.lit(None).cast("timestamp"),
        "scheduled_at": F.lit(None).cast("timestamp"),
        "header_due_ms": F.lit(None).cast("long"),
    }
    return rows.withColumns({name: missing[name] for name in names if name not in rows.columns})


def _due() -> Column:
    return F.unix_millis("due_at").alias("due_ms")


def _with_list(
    found: DataFrame, suspects: DataFrame, rows: DataFrame, name: str, item: Column
) -> DataFrame:
    """Add what rows say of each suspect as a sorted array."""
    mine = rows.join(F.broadcast(suspects), ["route", "id"], "left_semi").groupBy("route", "id")
    listed = mine.agg(F.sort_array(F.collect_list(item)).alias(name))
    both = found.join(listed, ["route", "id"], "left")
    return both.withColumn(name, F.coalesce(name, F.array()))


def _read_row(events: list[Row], messages: list[Row], calls: list[Row]) -> tuple[bool, ...]:
    return read_story(
        [JournalEvent(*row[1:]) for row in events],
        [ArrivedMessage(*row) for row in messages],
        [CallAnswer(*row) for row in calls],
    )


def with_readings(verdicts: DataFrame, readings: DataFrame) -> DataFrame:
    """Return the verdicts, with what the stories say beside what the counts prove."""
    both = verdicts.join(
        F.broadcast(readings.withColumnsRenamed(_RENAMED)), ["route", "id"], "left"
    )
    maybe = F.coalesce("maybe_after_cancel", F.lit(False)) & ~F.col("after_cancel")
    return both.withColumns(
        {
            "after_cancel": F.col("after_cancel") | F.coalesce("read_after_cancel", F.lit(False)),
            "misdated": F.coalesce("read_misdated", "misdated") & F.col("misdated"),
            "doubtful": F.when(maybe, F.array(F.lit("after_cancel"))).otherwise(F.col("doubtful")),
        }
    ).drop(*_RENAMED.values(), "maybe_after_cancel")


_RENAMED = {"after_cancel": "read_after_cancel", "misdated": "read_misdated"}
