"""The stories of ids with several lives, read event by event, in the store's order.

The counts of `verdict` cannot say which life a cancel ended. These can: a message carries the
instant at which its life began, and the journal has the same instant. Few ids need it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

_ENDS = ("delivered", "shunted", "dropped")
_CALLED_OFF = ("cancelled", "recorded")
_TAKEN = ("accepted", "replaced", "duplicate")
_READING = "after_cancel boolean, maybe_after_cancel boolean, misdated boolean"


class Event(NamedTuple):
    """An entry of the journal about an id."""

    kind: str
    at_ms: int
    due_ms: int | None
    attempt: int | None


class Message(NamedTuple):
    """A message that arrived, and what its headers say; None for unknown."""

    begun_ms: int | None
    due_ms: int | None


class Call(NamedTuple):
    """A receipt: the answer of a call, when the caller had it, and the due instant."""

    answer: str
    at_ms: int | None
    due_ms: int | None


class Reading(NamedTuple):
    """What the story of an id says; `maybe_after_cancel` without certainty."""

    after_cancel: bool
    maybe_after_cancel: bool
    misdated: bool


def read_story(
    events: Iterable[Event], messages: Sequence[Message], calls: Sequence[Call]
) -> Reading:
    """Return what the story of one id says.

    A message of a life that a cancel ended came after the cancel. So did, maybe, one of a life that
    began as a cold copy that had ended: at its due instant, after it. Only receipts can tell that
    from somebody who scheduled the id once more for the very same instant.
    """
    story = _Story()
    for event in events:
        story.enter(event)
    begun = {message.begun_ms for message in messages}
    came_back = bool(begun & story.brought_back)
    is_told = any(call.answer in _CALLED_OFF for call in calls)
    was_asked_for = came_back and _was_scheduled_again(calls)
    revoked = bool(begun & story.revoked)
    dues = story.dues | {call.due_ms for call in calls}
    return Reading(
        after_cancel=revoked or (came_back and is_told and not was_asked_for),
        maybe_after_cancel=came_back and not is_told,
        misdated=any(each.due_ms is not None and each.due_ms not in dues for each in messages),
    )


def _was_scheduled_again(calls: Sequence[Call]) -> bool:
    """Tell whether the last word of the receipts is that the id was scheduled."""
    told = [call for call in calls if call.answer in (*_CALLED_OFF, *_TAKEN)]
    last = max(told, key=lambda call: call.at_ms or 0, default=None)
    return last is not None and last.answer in _TAKEN


class _Story:
    """What is known of an id while its events are read."""

    def __init__(self) -> None:
        self.revoked: set[int | None] = set()  # begins of lives that a cancel ended
        self.brought_back: set[int | None] = set()  # begins of lives that had ended while cold
        self.dues: set[int | None] = set()
        self._here: Event | None = None
        self._cold: set[int | None] = set()  # due instants of copies that may return
        self._ended: set[int | None] = set()  # and of those that may not
        self._was_cold = False

    def enter(self, event: Event) -> None:
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

    def _begin(self, event: Event) -> None:
        """Begin a life: of the cold copy if it is due when that was, else instead of it."""
        if event.due_ms in self._ended:
            self.brought_back.add(event.at_ms)
        self._ended |= self._cold - {event.due_ms}
        self._cold, self._here = set(), event

    def _cancel(self, event: Event) -> None:
        if self._here is not None and not event.attempt:
            self.revoked.add(self._here.at_ms)
        if self._was_cold:
            self._ended |= self._cold | {event.due_ms}
        self._cold, self._here = set(), None


def read_stories(
    suspects: DataFrame, journal: DataFrame, arrived: DataFrame, receipts: DataFrame | None
) -> DataFrame:
    """Return a row for each suspect: route, id, and the fields of a `Reading`."""
    order, at_ms = F.struct("sequence", "position"), F.unix_millis("at")
    found = _listed(
        suspects,
        _told(journal, "position"),
        "events",
        F.struct(order, "kind", at_ms.alias("at_ms"), _due(), "attempt"),
    )
    begun = F.unix_millis("scheduled_at").alias("begun_ms")
    came = _told(arrived, "scheduled_at", "header_due_ms")
    found = _listed(found, came, "messages", F.struct(begun, "header_due_ms"))
    if receipts is None:
        found = found.withColumn("calls", F.array())
    else:
        said = _told(receipts, "status", "at")
        answer = F.coalesce("status", F.lit("accepted")).alias("answer")
        found = _listed(found, said, "calls", F.struct(answer, at_ms.alias("at_ms"), _due()))
    read = F.udf(_read_row, _READING)("events", "messages", "calls").alias("reading")
    return found.select("route", "id", read).select("route", "id", "reading.*")


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


def _listed(found: DataFrame, rows: DataFrame, name: str, item: Column) -> DataFrame:
    """Add what rows say of each suspect as a sorted array."""
    of_suspects = rows.join(F.broadcast(found.select("route", "id")), ["route", "id"], "left_semi")
    listed = of_suspects.groupBy("route", "id").agg(F.sort_array(F.collect_list(item)).alias(name))
    return found.join(listed, ["route", "id"], "left").withColumn(name, F.coalesce(name, F.array()))


def _read_row(events: list[Row], messages: list[Row], calls: list[Row]) -> tuple[bool, ...]:
    return read_story(
        [Event(*row[1:]) for row in events],
        [Message(*row) for row in messages],
        [Call(*row) for row in calls],
    )


def with_readings(verdicts: DataFrame, readings: DataFrame) -> DataFrame:
    """Return the verdicts, with what the stories say instead of what the counts say."""
    both = verdicts.join(
        F.broadcast(readings.withColumnsRenamed(_RENAMED)), ["route", "id"], "left"
    )
    maybe = F.coalesce("maybe_after_cancel", F.lit(False))
    return both.withColumns(
        {
            "after_cancel": F.coalesce("read_after_cancel", "after_cancel"),
            "misdated": F.coalesce("read_misdated", "misdated") & F.col("misdated"),
            "doubtful": F.when(maybe, F.array(F.lit("after_cancel"))).otherwise(F.col("doubtful")),
        }
    ).drop(*_RENAMED.values(), "maybe_after_cancel")


_RENAMED = {"after_cancel": "read_after_cancel", "misdated": "read_misdated"}
