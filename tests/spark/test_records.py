"""Kafka's records as envelopes: what is kept, when it is due, and under which id."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from duebridge.durations import parse_duration_ms
from duebridge.errors import EnvelopeError
from duebridge_connectors.spark.transforms.envelopes import envelopes_of_records

AT_MS = 1_700_000_000_123
HEADERS = "headers array<struct<key: string, value: binary>>"
RECORDS = "key binary, value binary, topic string, partition int, offset bigint,"
RECORDS += f" timestamp timestamp, timestampType int, {HEADERS}"
DELAYS = ("15m", "2.5s", "0.0001s", "3d", " 1h ", "0ms", "1.000000001s", "999999999999ms", "2w")
DELAYS += ("1h30m", "1d0.5s0.0001ms")
UNREADABLE = ("15", "x", "", " ", "-1s", "1e3s", "5 m", "30m1h", "1h30")

Header = tuple[str, bytes | None]


def records(spark: SparkSession, *headers: list[Header] | None) -> DataFrame:
    """A record for each of these headers, at the offsets from 7 on."""
    at = datetime.fromtimestamp(AT_MS / 1000, UTC)
    rows = [(b"k", b"v", "t", 3, 7 + number, at, 0, of) for number, of in enumerate(headers)]
    return spark.createDataFrame(rows, RECORDS)


def test_records_keep_value_key_and_headers_under_an_id_of_their_place(spark: SparkSession) -> None:
    kept: list[Header] = [("a", b"1"), ("a", None), ("b", b"\xff")]
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
