"""What a message asks for: every form of every control header, read or refused with a reason."""

from typing import Any

import pytest
from msgspec.msgpack import Ext
from msgspec.structs import replace

from duebridge.envelope import Headers, Instant, Properties, Target
from duebridge.intake.requests import CancelRequest, RefusedMessage
from duebridge.ports.publisher import Reason
from duebridge.ports.source import Arrival
from tests.intake.entrance import named, placed, queued
from tests.intake.requests.reading import AMQP, field, of, read, refused, scheduled

# --- what stays ---


def test_read_message_keeps_all_but_the_controls_to_the_byte() -> None:
    kept: Headers = (
        *(("a", b"\xff\x00"), ("A", "\u00e9"), ("a", None), ("n", -(2**63)), ("b", True)),
        *(("x", Ext(AMQP, b"d" + bytes(8))), ("x-first-death-queue", "q"), ("kafka_x", b"")),
    )
    controls = [
        *("x-message-id", "x-route", "x-attempt", "x-due-at", "x-scheduled-at", "x-death"),
        *("x-dlq-reason", "X-DLQ-Anything", "X-Message-Id"),
    ]
    headers = tuple(pair for one in kept for pair in (one, *((name, b"1") for name in controls)))
    properties = Properties(content_type="text/plain", correlation_id="c", priority=3)
    arrival = Arrival(b"\x00\xff", id="m", key=None, headers=headers, properties=properties)

    envelope = scheduled(arrival).envelope

    assert (envelope.headers, envelope.body) == (kept, b"\x00\xff")
    assert envelope.properties is properties


@pytest.mark.parametrize(
    "header",
    [
        *(("", b"v"), ("x" * 256, b"v"), ("\u00e9" * 128, b"v"), ("a\nb", b"v"), ("\ud800", b"v")),
        *(("a", "\ud800"), ("a", 2**63), ("a", -(2**63) - 1), ("a", 1.5), ("a", [1]), ("a", {})),
    ],
)
def test_read_header_that_cannot_be_kept_is_refused(header: tuple[str, Any]) -> None:
    refusal = refused(of(header))

    assert refusal.reason is Reason.INVALID
    refusal.text.encode()  # it goes into a header itself


@pytest.mark.parametrize("name", ["x-round", "x-origin", "x-origin-timestamp"])
def test_read_round_of_an_intake_that_takes_nothing_back_stays(name: str) -> None:
    assert scheduled(of((name, b"7"))).envelope.headers == ((name, b"7"),)


# --- ids ---


@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        (queued("order-1"), "order-1"),
        (placed(7), "box:late:0:7:1700000000000"),
        (placed(7, key=b"k"), "box:late:0:7:1700000000000"),
        (placed(7, message_id="m"), "box:late:0:7:1700000000000"),
        (queued("\u00e9" * 127), "\u00e9" * 127),
        (queued("x" * 255), "x" * 255),
    ],
)
def test_read_id_is_that_of_the_message(arrival: Arrival, expected: str) -> None:
    assert scheduled(arrival).envelope.id == expected


@pytest.mark.parametrize("id", ["x" * 256, "\u00e9" * 128, "a\nb", "\x00", "\ud800"])
def test_read_id_that_the_limits_refuse_is_hashed_alike(id: str) -> None:
    first, again = (scheduled(queued(id)).envelope.id for _ in range(2))

    assert first == again
    assert len(first) == 32
    assert read(queued("m", x_cancel=id)) == CancelRequest(queued("m", x_cancel=id), "r", first)


def test_read_message_without_id_gets_one_of_its_own() -> None:
    assert len({scheduled(queued("")).envelope.id for _ in range(50)}) == 50


@pytest.mark.parametrize(
    ("key", "expected"), [(b"order-1", "order-1"), ("\u00e9".encode(), "\u00e9")]
)
def test_read_key_is_the_id_where_it_replaces(key: bytes, expected: str) -> None:
    envelope = scheduled(placed(7, key=key), on_conflict="replace").envelope

    assert (envelope.id, envelope.key) == (expected, key)


def test_read_key_that_is_no_text_is_hashed_where_it_replaces() -> None:
    ids = {
        scheduled(placed(7, key=key), on_conflict="replace").envelope.id
        for key in (b"\xff", b"\xfe", b"", b"\n", b"x" * 300)
    }
    assert {len(each) for each in ids} == {32}
    assert len(ids) == 5


# --- route and target ---


@pytest.mark.parametrize("given", ["s", b"s"])
def test_read_route_is_the_one_named(given: Any) -> None:
    assert scheduled(of(("X-Route", given))).route == "s"


@pytest.mark.parametrize("given", ["t", b"t", b"\xff", None, "", True, Ext(AMQP, b"V")])
def test_read_route_that_is_not_there_is_refused(given: Any) -> None:
    assert refused(of(("x-route", given))).text.startswith("x-route: expected ")


def test_read_route_of_a_megabyte_is_refused_in_few_words() -> None:
    text = refused(of(("x-route", b"s" * 2**20))).text
    assert len(text) < 400
    assert "did you mean" not in text


def test_read_route_of_a_delivery_is_not_asked_for() -> None:
    assert scheduled(of(("x-route", b"gone"), ("x-attempt", b"1"))).route == "r"


def test_read_target_of_a_scheduler_with_its_key() -> None:
    headers = {"scheduler_target_topic": b"orders-late", "scheduler_target_key": b"k"}
    envelope = scheduled(placed(1, key=b"own", **headers)).envelope

    assert (envelope.target, envelope.key) == (Target("box", topic="orders-late"), b"k")


def test_read_own_target_of_the_route_is_none() -> None:
    onward = Target("box", exchange="e", routing_key="k")
    arrival = Arrival(b"body", id="m", onward=onward)

    assert scheduled(arrival, declare={"exchange": "e"}).envelope.target is None
    assert scheduled(arrival).envelope.target is None


# --- cancels ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [("a", "a"), (b"a", "a"), (5, "5"), (field("s", ">h", 5), "5"), ("false", "false")],
)
def test_read_cancel_names_an_id(given: Any, expected: str) -> None:
    request = read(queued("m", x_cancel=given, x_delay="soon"))

    assert isinstance(request, CancelRequest)
    assert (request.id, request.route) == (expected, "r")


@pytest.mark.parametrize("given", [None, "", b"", True, "true", b"true"])
@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        (queued("m"), "m"),
        (placed(1, key=b"order"), "order"),
        (placed(1, message_id="order"), "order"),
    ],
)
def test_read_cancel_without_id_means_the_messages_own(
    given: Any, arrival: Arrival, expected: str
) -> None:
    request = read(replace(arrival, headers=named({"x_cancel": given})))

    assert isinstance(request, CancelRequest)
    assert request.id == expected


@pytest.mark.parametrize("arrival", [queued("", x_cancel=b""), placed(1, x_cancel=b"true")])
def test_read_cancel_of_nothing_is_refused(arrival: Arrival) -> None:
    assert refused(arrival).text.startswith("x-cancel: expected an id")


@pytest.mark.parametrize("given", [False, b"\xff", 1.5])
def test_read_cancel_of_no_text_is_refused(given: Any) -> None:
    assert isinstance(read(queued("m", x_cancel=given)), RefusedMessage)


def test_read_tombstone_cancels_where_the_key_replaces() -> None:
    tombstone = placed(1, None, key=b"order")

    assert read(tombstone, on_conflict="replace") == CancelRequest(tombstone, "r", "order")
    assert scheduled(tombstone).envelope.body is None


def test_read_tombstone_with_a_time_is_scheduled() -> None:
    envelope = scheduled(placed(1, None, key=b"k", x_delay=b"5"), on_conflict="replace").envelope

    assert (envelope.id, envelope.body) == ("k", None)


# --- rounds ---


def test_read_first_failure_is_round_one_of_its_delivery() -> None:
    envelope = scheduled(placed(1, x_message_id=b"order/7", x_attempt=b"2"), to="origin").envelope

    assert envelope.id == "order/7/1"
    assert dict(envelope.headers)["x-round"] == "1"
    assert envelope.target == Target("box", topic="orders")


def test_read_later_failure_goes_on_counting() -> None:
    headers = {"x_message_id": b"order/7/1", "x_round": b"1", "x_origin": b"orders"}
    envelope = scheduled(placed(9, **headers, x_origin_timestamp=b"5"), to="origin").envelope

    assert envelope.id == "order/7/2"
    assert envelope.headers == (
        ("x-round", "2"),
        ("x-origin", "orders"),
        ("x-origin-timestamp", b"5"),
    )


def test_read_failure_of_a_foreign_message_counts_by_its_own_id() -> None:
    assert scheduled(placed(9), to="origin").envelope.id == "box:late:0:9:1700000000000/1"
    arrival = Arrival(b"body", id="m", origin="orders")
    assert scheduled(arrival, to="origin").envelope.id == "m/1"


def test_read_failure_waits_as_asked_or_as_the_route_backs_off() -> None:
    asked = scheduled(placed(1, x_retry_after=b"77"), to="origin").envelope
    first, again = (scheduled(placed(1), to="origin").envelope.due for _ in range(2))

    assert asked.due == Instant(77, relative=True)
    assert first == again
    assert 0 <= first.ms <= 1000
    dues = {scheduled(placed(number), to="origin").envelope.due.ms for number in range(50)}
    assert len(dues) > 25


def test_read_failure_beyond_the_last_round_is_refused() -> None:
    exhausted = refused(placed(1, x_round=b"2"), to="origin")

    assert exhausted.reason is Reason.ATTEMPTS_EXHAUSTED
    assert scheduled(placed(1, x_round=b"1"), to="origin").envelope.id.endswith("/2")


@pytest.mark.parametrize("given", [b"-1", b"x", None, True, b"9" * 15, -(2**31)])
def test_read_round_that_is_none_is_refused(given: Any) -> None:
    assert isinstance(read(placed(1, x_round=given), to="origin"), RefusedMessage)


def test_read_failure_without_origin_is_refused() -> None:
    arrival = Arrival(b"body", id="m")

    assert refused(arrival, to="origin").reason is Reason.UNROUTABLE
