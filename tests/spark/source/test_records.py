"""Kafka's records as envelopes, and dead letters again: what is kept, when due, under which id."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.testing import assertDataFrameEqual

from duebridge.config.load import load_config
from duebridge.durations import parse_duration_ms
from duebridge.errors import EnvelopeError
from duebridge_connectors.spark.transforms.envelopes import envelopes_of_records
from duebridge_connectors.spark.transforms.letters import (
    own_target,
    parse_dead_letters,
    replay_envelopes,
    with_judged_targets,
)
from tests.spark.world import World

AT_MS = 1_700_000_000_123
HEADERS = "headers array<struct<key: string, value: binary>>"
RECORDS = "key binary, value binary, topic string, partition int, offset bigint,"
RECORDS += f" timestamp timestamp, timestampType int, {HEADERS}"
DELAYS = ("15m", "2.5s", "0.0001s", "3d", " 1h ", "0ms", "1.000000001s", "999999999999ms", "2w")
DELAYS += ("1h30m", "1d0.5s0.0001ms", "1234567890ms", "007d")
UNREADABLE = ("15", "x", "", " ", "-1s", "1e3s", "5 m", "30m1h", "1h30", "+1s", "1.s", "s", "1sm")
UNREADABLE += ("999999999w", "999999999999w", "15000000000w15000000000d")

Header = tuple[str, bytes | None]


def records(spark: SparkSession, *headers: list[Header] | None) -> DataFrame:
    """A record for each of these headers, at the offsets from 7 on."""
    at = datetime.fromtimestamp(AT_MS / 1000, UTC)
    rows = [(b"k", b"v", "t", 3, 7 + number, at, 0, of) for number, of in enumerate(headers)]
    return spark.createDataFrame(rows, RECORDS)


def test_records_keep_value_key_and_headers_under_an_id_of_their_place(spark: SparkSession) -> None:
    kept: list[Header] = [("a", b"1"), ("a", None), ("b", b"\xff")]
    kept += [("my-x-route", b"r"), ("X-Delay", b"1h")]
    ours: list[Header] = [("x-route", b"r"), ("X-Attempt", b"1"), ("x-dlq-reason", b"expired")]
    found = envelopes_of_records(records(spark, kept + ours, None), "T-1", {"delay": "'1h'"})
    rows = [("T-1:3:7", b"v", b"k", kept, "1h"), ("T-1:3:8", b"v", b"k", None, "1h")]
    schema = f"id string, body binary, key binary, {HEADERS}, delay string"
    assertDataFrameEqual(found, spark.createDataFrame(rows, schema))


def dues(spark: SparkSession, *headers: list[Header] | None, **options: Any) -> list[Any]:
    found = envelopes_of_records(records(spark, *headers), "T", {}, delay_header="d", **options)
    return [(row["due_at"], row["delay"]) for row in found.collect()]


def test_records_with_a_delay_header_are_due_so_long_after_their_own_time(
    spark: SparkSession,
) -> None:
    given: list[list[Header]] = [[("d", b"9d"), ("d", delay.encode())] for delay in DELAYS]
    expected = [(AT_MS + parse_duration_ms(delay), None) for delay in DELAYS]
    assert dues(spark, *given) == expected


def test_records_with_a_delay_that_nobody_can_read_leave_it_to_be_refused(
    spark: SparkSession,
) -> None:
    given: list[list[Header]] = [[("d", delay.encode())] for delay in UNREADABLE]
    expected = [(None, delay) for delay in (*UNREADABLE, None, None)]
    assert dues(spark, *given, None, []) == expected
    for delay in UNREADABLE:
        with pytest.raises(EnvelopeError):
            parse_duration_ms(delay)


def test_records_with_a_due_header_are_due_at_that_instant(spark: SparkSession) -> None:
    given: list[list[Header]] = [[("u", b"1234")], [("u", b"soon")], [("d", b"1s")]]
    found = dues(spark, *given, due_header="u")
    assert [due_at for due_at, _ in found] == [1234, None, AT_MS + 1000]


def test_records_by_sql_choose_rows_and_make_columns(spark: SparkSession) -> None:
    given = records(spark, [("kind", b"a")], [("kind", b"b"), ("kind", b"c")])
    columns = {"id": "concat(header['kind'], '-', offset)", "due_at": "unix_millis(timestamp)"}
    (row,) = envelopes_of_records(given, "T", columns, where="header['kind'] = 'c'").collect()
    assert (row["id"], row["due_at"]) == ("c-8", AT_MS)


LETTER = {
    "mine": b"1",
    "x-message-id": b"order-42",
    "x-route": b"due",
    "x-attempt": b"5",
    "x-due-at": b"1700000000000",
    "x-scheduled-at": b"1600000000000",
    "x-dlq-reason": b"too_large",
    "x-dlq-error-class": b"MessageSizeTooLargeError",
    "x-dlq-error-message": b"too large",
    "x-dlq-route": b"due",
    "x-dlq-target": b"kafka:due",
    "x-dlq-first-failed-at": b"1700000001000",
    "x-dlq-last-failed-at": b"1700000002000",
}


def letter(**changed: bytes | None) -> list[Header]:
    """A dead letter's headers; None takes one away."""
    headers = {**LETTER, **{name.replace("_", "-"): value for name, value in changed.items()}}
    return [(name, value) for name, value in headers.items() if value is not None]


def letters(spark: SparkSession, *given: list[Header] | None, most: int = 3) -> DataFrame:
    return parse_dead_letters(records(spark, *given), ["due", "open"], most)


def envelopes(spark: SparkSession, *given: list[Header], **more: int) -> list[Row]:
    return replay_envelopes(letters(spark, *given), {}, **more).collect()


def test_letters_have_what_their_headers_say_as_columns(spark: SparkSession) -> None:
    (row,) = letters(spark, letter(x_replays=b"2")).collect()
    texts = (row["route"], row["reason"], row["error_class"], row["message_id"], row["target"])
    assert texts == ("due", "too_large", "MessageSizeTooLargeError", "order-42", "kafka:due")
    assert (row["replays"], row["status"]) == (2, "ready")
    assert row["last_failed_at"].timestamp() == 1_700_000_002


def test_letters_that_may_not_be_replayed_say_why(spark: SparkSession) -> None:
    given: dict[str, list[list[Header] | None]] = {
        "looped": [letter(x_replays=b"3")],
        "no_route": [letter(x_dlq_route=b"gone")],
        # as the worker's `damaged_letter` has it
        "damaged": [letter(x_attempt=None), *(letter(x_replays=n) for n in (b"many", b"-1")), None],
    }
    for status, of in given.items():
        found = letters(spark, *of).collect()
        assert [row["status"] for row in found] == [status] * len(of)


def test_replay_keeps_the_headers_of_the_envelope_and_counts_itself(spark: SparkSession) -> None:
    rows = envelopes(spark, letter(), letter(x_replays=b"1", x_replay_of=b"order-1"))
    values = [[(each["key"], bytes(each["value"])) for each in row["headers"]] for row in rows]
    mine = ("mine", b"1")
    assert values[0] == [mine, ("x-replays", b"1"), ("x-replay-of", b"order-42")]
    assert values[1] == [mine, ("x-replays", b"2"), ("x-replay-of", b"order-1")]


def test_replay_of_one_life_has_one_id_and_of_another_life_another(spark: SparkSession) -> None:
    copy = letter(x_dlq_last_failed_at=b"1700000003000")
    others = [letter(x_attempt=b"6"), letter(x_scheduled_at=b"1"), letter(x_dlq_route=b"open")]
    ids = [row["id"] for row in envelopes(spark, letter(), copy, *others)]
    assert ids[0] == ids[1]
    assert len(set(ids[1:])) == 4


def test_replay_spreads_evenly_and_always_alike(spark: SparkSession) -> None:
    given = [letter(x_message_id=b"%d" % number) for number in range(1000)]
    first = envelopes(spark, *given, delay_ms=500, spread_ms=10_000)
    again = envelopes(spark, *given, delay_ms=500, spread_ms=10_000)
    assert [row["delay"] for row in first] == [row["delay"] for row in again]
    delays = sorted(int(row["delay"].removesuffix("ms")) for row in first)
    assert delays[0] >= 500
    assert delays[-1] <= 10_500
    assert 5_000 < delays[500] < 6_000
    assert {row["delay"] for row in envelopes(spark, *given)} == {"0ms"}


def test_replay_with_repairs_takes_them_and_keeps_its_own_headers(spark: SparkSession) -> None:
    no_headers = "cast(null as array<struct<key string, value binary>>)"
    repairs = {"body": "concat(value, '!')", "headers": no_headers}
    (row,) = replay_envelopes(letters(spark, letter()), repairs).collect()
    assert row["body"] == "v!"
    assert [each["key"] for each in row["headers"]] == ["x-replays", "x-replay-of"]


def test_own_target_is_what_the_letter_names_where_the_route_permits_others(world: World) -> None:
    routes = load_config(world.config).routes
    assert own_target(routes["plain"]) is None
    target = own_target(routes["amqp"])
    assert target is not None
    names = (b"rabbit:x/a/b", b"rabbit:y/a\nb", str(routes["amqp"].target).encode())
    given = letters(world.spark, *(letter(x_dlq_target=name) for name in names))
    *own, routes_own = (row[0] for row in given.select(target).collect())
    assert [(each.broker, each.exchange, each.routing_key) for each in own] == [
        ("rabbit", "x", "a/b"),
        ("rabbit", "y", "a\nb"),
    ]
    assert routes_own is None


def test_letter_whose_target_may_be_of_either_exchange_is_damaged(world: World) -> None:
    routes = load_config(world.config).routes
    names = (b"rabbit:eu/billing/k", b"kafka:t", b"rabbit:x/a/b", b"rabbit:/a/b", b"rabbit:y/k")
    given = letters(
        world.spark, *(letter(x_dlq_target=name, x_dlq_route=b"amqp") for name in names)
    )
    ready = given.withColumn("status", F.lit("ready"))
    found = [row.status for row in with_judged_targets(ready, routes).collect()]
    assert found == ["damaged", "other_broker", "ready", "not_allowed", "not_allowed"]
