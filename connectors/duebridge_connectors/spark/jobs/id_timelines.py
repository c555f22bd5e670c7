"""Tells the stories of the ids that a verdict names, for its page.

violations ─▶ some ids of each kind ─▶ journal, messages, store, receipts ─▶ lines by time
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.page.verdict import IdStory, StoryLine, shown_instant
from duebridge_connectors.spark.transforms.verdict import Evidence, some_of_each_kind

MOST_OF_A_KIND = 100  # stories; all ids are in the Parquet files
MOST_LINES = 200  # of one source about one id

_INSTANTS = ("due_at", "scheduled_at", "header_due_ms", "waits_for")  # as ms by now

Key: TypeAlias = tuple[str, str]


def told_stories(wrong: DataFrame, evidence: Evidence) -> tuple[list[IdStory], int]:
    """Return the stories of some ids of each kind, and how many ids are left out."""
    named = _named(wrong)
    if not named:
        return [], 0
    keys = wrong.sparkSession.createDataFrame(list(named), "route string, id string")
    lines = _lines(keys, evidence)
    total = wrong.select("route", "id").distinct().count()
    stories = [IdStory(*key, *_kinds(rows), lines[key]) for key, rows in sorted(named.items())]
    return stories, total - len(stories)


def _named(wrong: DataFrame) -> dict[Key, list[Row]]:
    some = some_of_each_kind(wrong, MOST_OF_A_KIND).select("route", "id", "kind", "is_certain")
    found: defaultdict[Key, list[Row]] = defaultdict(list)
    for row in some.collect():
        found[row.route, row.id].append(row)
    return found


def _kinds(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    certain = [row.kind for row in rows if row.is_certain]
    return certain, [row.kind for row in rows if not row.is_certain]


def _lines(keys: DataFrame, evidence: Evidence) -> dict[Key, list[StoryLine]]:
    sources: list[tuple[DataFrame | None, Callable[[dict[str, Any]], StoryLine]]] = [
        (evidence.journal, _of_journal),
        (evidence.arrived, _of_message),
        (evidence.held, _of_store),
        (evidence.receipts, _of_receipt),
    ]
    found: defaultdict[Key, list[StoryLine]] = defaultdict(list)
    for rows, line_of in sources:
        if rows is not None:
            for row in _about(keys, rows):
                found[row["route"], row["id"]].append(line_of(row))
    return found


def _about(keys: DataFrame, rows: DataFrame) -> list[dict[str, Any]]:
    """Select the rows of the ids; instants as epoch ms."""
    instants = {name: F.unix_millis(name) for name, kind in rows.dtypes if kind == "timestamp"}
    mine = rows.withColumns(instants).join(F.broadcast(keys), ["route", "id"], "left_semi")
    fields = F.struct(*(name for name in rows.columns if name not in ("route", "id")))
    listed = mine.groupBy("route", "id").agg(
        F.slice(F.collect_list(fields), 1, MOST_LINES).alias("rows")
    )
    return [
        {"route": row.route, "id": row.id, **each.asDict()}
        for row in listed.collect()
        for each in row.rows
    ]


def _of_journal(row: dict[str, Any]) -> StoryLine:
    notes = _notes(row, due_at="due", attempt="attempt", reason="because")
    return StoryLine(row["at"], "journal", f"{row['kind']}{notes}")


def _of_message(row: dict[str, Any]) -> StoryLine:
    what = "came as a dead letter" if row["dead_letter"] else "came"
    where = "" if row.get("place") in (None, "right") else " where it does not belong"
    notes = _notes(row, scheduled_at="scheduled", header_due_ms="x-due-at")
    return StoryLine(row["at"], "broker", f"{what}{where}{notes}")


def _of_store(row: dict[str, Any]) -> StoryLine:
    notes = _notes(row, waits_for="waits for", scheduled_at="scheduled")
    return StoryLine(None, "store", f"holds it: {row['state']}{notes}")


def _of_receipt(row: dict[str, Any]) -> StoryLine:
    answer = row.get("status") or "accepted"
    return StoryLine(row.get("at"), "receipt", f"{answer}{_notes(row, due_at='due')}")


def _notes(row: dict[str, Any], **words: str) -> str:
    """Return what is known of these columns, instants as times."""
    found = [
        f"{word} {shown_instant(row[name]) if name in _INSTANTS else row[name]}"
        for name, word in words.items()
        if row.get(name) is not None
    ]
    return f" ({', '.join(found)})" if found else ""
