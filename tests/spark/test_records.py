"""Kafka's records as envelopes: what is kept, when it is due, and under which id."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from duebridge.durations import parse_duration_ms
from duebridge.errors import EnvelopeError
from duebridge_connectors.spark.transforms.envelopes import envelopes_of_records

AT_MS = 1_700_000_000_123
RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key: string, value: binary>>"
)
DELAYS = ("15m", "2.5s", "0.0001s", "3d", " 1h ", "0ms", "1.000000001s", "999999999999ms")
UNREADABLE = ("15", "x", "", "-1s", "1e3s", "5 m", "1w")

Header = tuple[str, bytes | None]


def records(spark: SparkSession, *headers: list[Header] | None) -> DataFrame:
    """A record for each of these headers, at the offsets from 7 on."""
    at = datetime.fromtimestamp(AT_MS / 1000, UTC)
    rows = [
        (bytearray(b"k"), bytearray(b"v"), "t", 3, 7 + number, at, 0, each)
        for number, each in enumerate(headers)
    ]
    return spark.createDataFrame(rows, RECORDS)


def test_records_keep_value_key_and_headers_under_an_id_of_their_place(spark: SparkSession) -> None:
    given = records(spark, [("a", b"1"), ("a", None), ("b", b"\xff")], None)
    found = envelopes_of_records(given, "T-1", {"delay": "'1h'"})
    key, value = bytearray(b"k"), bytearray(b"v")
    kept = [("a", bytearray(b"1")), ("a", None), ("b", bytearray(b"\xff"))]
    expected = spark.createDataFrame(
        [("T-1:3:7", value, key, kept, "1h"), ("T-1:3:8", value, key, None, "1h")],
        "id string, body binary, key binary, headers array<struct<key: string, value: binary>>,"
        " delay string",
    )
    assertDataFrameEqual(found, expected)


def test_records_of_an_earlier_delivery_lose_the_headers_that_duebridge_sets(
    spark: SparkSession,
) -> None:
    ours: list[Header] = [("x-route", b"r"), ("X-Attempt", b"1"), ("x-dlq-reason", b"expired")]
    (row,) = envelopes_of_records(records(spark, [("x-mine", b"1"), *ours]), "T", {}).collect()
    assert [each["key"] for each in row["headers"]] == ["x-mine"]


def test_records_with_a_delay_header_are_due_so_long_after_their_own_time(
    spark: SparkSession,
) -> None:
    given: list[list[Header]] = [[("d", b"9d"), ("d", each.encode())] for each in DELAYS]
    found = envelopes_of_records(records(spark, *given), "T", {}, delay_header="d").collect()
    assert [row["due_at"] - AT_MS for row in found] == [parse_duration_ms(each) for each in DELAYS]
    assert {row["delay"] for row in found} == {None}


def test_records_with_a_delay_that_nobody_can_read_leave_it_to_be_refused(
    spark: SparkSession,
) -> None:
    given: list[list[Header] | None] = [[("d", each.encode())] for each in UNREADABLE]
    rows = envelopes_of_records(records(spark, *given, None, []), "T", {}, delay_header="d")
    found = rows.collect()
    assert [row["due_at"] for row in found] == [None] * len(found)
    assert [row["delay"] for row in found] == [*UNREADABLE, None, None]
    for each in UNREADABLE:
        with pytest.raises(EnvelopeError):
            parse_duration_ms(each)


def test_records_with_a_due_header_are_due_at_that_instant(spark: SparkSession) -> None:
    given = records(spark, [("u", b"1234")], [("u", b"soon")], [("d", b"1s")])
    found = envelopes_of_records(given, "T", {}, delay_header="d", due_header="u").collect()
    assert [row["due_at"] for row in found] == [1234, None, AT_MS + 1000]


def test_records_by_sql_choose_rows_and_make_columns(spark: SparkSession) -> None:
    given = records(spark, [("kind", b"a")], [("kind", b"b"), ("kind", b"c")])
    columns = {"id": "concat(header['kind'], '-', offset)", "due_at": "unix_millis(timestamp)"}
    (row,) = envelopes_of_records(given, "T", columns, where="header['kind'] = 'c'").collect()
    assert (row["id"], row["due_at"]) == ("c-8", AT_MS)
