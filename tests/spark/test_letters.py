"""Dead letters as rows and as envelopes: what may be tried again, and under which id."""

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from duebridge.config.models import Route
from duebridge_connectors.spark.transforms.letters import (
    own_target,
    parse_dead_letters,
    replay_envelopes,
)
from tests.spark.test_records import Header, records

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


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"x_replays": b"3"}, "looped"),
        ({"x_dlq_route": b"gone"}, "no_route"),
        ({"x_attempt": None}, "damaged"),  # as duebridge.worker.dead_letters.damaged_letter has it
        ({"x_replays": b"many"}, "damaged"),
        ({"x_replays": b"-1"}, "damaged"),
    ],
)
def test_letters_that_may_not_be_replayed_say_why(
    changed: dict[str, bytes | None], status: str, spark: SparkSession
) -> None:
    (row,) = letters(spark, letter(**changed)).collect()
    assert row["status"] == status


def test_letters_of_no_headers_are_damaged(spark: SparkSession) -> None:
    assert [row["status"] for row in letters(spark, None, []).collect()] == ["damaged", "damaged"]


def test_replay_keeps_the_headers_of_the_envelope_and_counts_itself(spark: SparkSession) -> None:
    first, second = envelopes(spark, letter(), letter(x_replays=b"1", x_replay_of=b"order-1"))
    values = [[(each["key"], bytes(each["value"])) for each in row["headers"]]
              for row in (first, second)]  # fmt: skip
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
    repairs = {
        "body": "concat(value, '!')",
        "headers": "cast(null as array<struct<key string, value binary>>)",
    }
    (row,) = replay_envelopes(letters(spark, letter()), repairs).collect()
    assert row["body"] == "v!"
    assert [each["key"] for each in row["headers"]] == ["x-replays", "x-replay-of"]


def route(**fields: object) -> Route:
    return Route.model_validate({"name": "r", **fields})


def test_own_target_is_what_differs_from_the_routes(spark: SparkSession) -> None:
    kafka = {"broker": "kafka", "topic": "due"}
    rabbit = {"broker": "rabbit", "exchange": "x", "routing_key": "due"}
    assert own_target(route(target=kafka)) is None
    given = letters(spark, letter(), letter(x_dlq_target=b"kafka:due-b"))
    topics = own_target(route(target=kafka, allow_targets=[{"broker": "kafka", "topic": "due-*"}]))
    assert topics is not None
    assert [row[0] and row[0].asDict() for row in given.select(topics).collect()] == [
        None,
        {"broker": "kafka", "topic": "due-b"},
    ]
    keys = own_target(route(target=rabbit, allow_targets=[rabbit]))
    assert keys is not None
    (row,) = letters(spark, letter(x_dlq_target=b"rabbit:x/a/b")).select(keys).collect()
    assert row[0].asDict() == {"broker": "rabbit", "exchange": "x", "routing_key": "a/b"}
