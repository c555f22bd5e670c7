"""What a message asks for: every form of every control header, read or refused with a reason."""

from struct import pack
from typing import Any

import pytest
from msgspec.msgpack import Ext

from duebridge.durations import MAX_MS
from duebridge.envelope import Headers, Instant, Properties, Target
from duebridge.intake.requests import Cancel, Refusal, Request, Rules, Scheduled, read_arrival
from duebridge.ports.publisher import Reason
from duebridge.ports.source import Arrival
from tests.intake.entrance import intake_config, named, placed, queued

AMQP = 1  # the code of an Ext that is an AMQP field
INTS = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">Q"}
NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z


def field(tag: str, form: str, value: Any) -> Ext:
    return Ext(AMQP, tag.encode() + pack(form, value))


def rules(**intake: Any) -> Rules:
    config = intake_config(**intake)
    return Rules.of(config, config.intakes["in"])


def read(arrival: Arrival, **intake: Any) -> Request:
    return read_arrival(rules(**intake), arrival)


def scheduled(arrival: Arrival, **intake: Any) -> Scheduled:
    request = read(arrival, **intake)
    assert isinstance(request, Scheduled), request
    return request


def refused(arrival: Arrival, **intake: Any) -> Refusal:
    request = read(arrival, **intake)
    assert isinstance(request, Refusal), request
    return request


def of(*headers: tuple[str, Any]) -> Arrival:
    return Arrival(b"body", id="m", headers=headers)


# --- when it is due ---

WHOLE = [
    *((field(tag, form, 100), 100) for tag, form in INTS.items()),
    *((field(tag, form, 0), 0) for tag, form in INTS.items()),
    (field("b", ">b", 127), 127),
    (field("B", ">B", 255), 255),
    (field("s", ">h", 2**15 - 1), 2**15 - 1),
    (field("u", ">H", 2**16 - 1), 2**16 - 1),
    (field("i", ">I", 2**32 - 1), 2**32 - 1),
    (field("l", ">q", 2**32 + 1), 2**32 + 1),
    (field("L", ">Q", MAX_MS), MAX_MS),
    *((value, value) for value in (0, 1, 5000, 2**31, 2**32, 2**40, MAX_MS)),
    *((str(value), value) for value in (0, 5000, 2**32 + 5, MAX_MS)),
    *((str(value).encode(), value) for value in (0, 5000, 2**32 + 5, MAX_MS)),
    (b"0005000", 5000),
]
NOT_WHOLE = [
    *(field(tag, INTS[tag], -1) for tag in "bsIl"),
    *(
        -1,
        -(2**63),
        MAX_MS + 1,
        2**63 - 1,
        field("L", ">Q", 2**64 - 1),
        field("L", ">Q", MAX_MS + 1),
    ),
    *(
        None,
        True,
        False,
        field("t", ">?", True),
        Ext(AMQP, b"V"),
        Ext(AMQP, b""),
        Ext(AMQP, b"I\0"),
    ),
    *(field("f", ">f", 5.0), field("d", ">d", 5.0), field("T", ">Q", 5)),
    *("", b"", " ", "soon", "5s", "5.0", b"5.0", "5e3", "1_000", "0x10", "+5", "5 ", "\u0665"),
    *("-1", b"-1", "9" * 19, "9" * 5000, b"\xff\xfe", b"\0\0\x13\x88", "NaN", "nan", "inf"),
]


@pytest.mark.parametrize("name", ["x-delay", "x-retry-after", "X-Delay", "X-RETRY-AFTER"])
@pytest.mark.parametrize(("given", "ms"), WHOLE)
def test_read_delay_of_any_width_is_that_delay(name: str, given: Any, ms: int) -> None:
    envelope = scheduled(of((name, given))).envelope

    assert envelope.due == Instant(ms, relative=True)
    assert envelope.headers == ()


@pytest.mark.parametrize("name", ["x-delay", "x-retry-after"])
@pytest.mark.parametrize("given", NOT_WHOLE)
def test_read_delay_that_is_none_is_refused_by_its_name(name: str, given: Any) -> None:
    refusal = refused(of((name, given)))

    assert refusal.reason is Reason.INVALID
    assert refusal.text.startswith(f"{name}: expected ")
    assert len(refusal.text) < 400


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        *((NOON_MS, NOON_MS), (str(NOON_MS), NOON_MS), (str(NOON_MS).encode(), NOON_MS)),
        *((field("l", ">q", NOON_MS), NOON_MS), (field("L", ">Q", NOON_MS), NOON_MS)),
        (field("T", ">Q", NOON_MS // 1000), NOON_MS),
        ("2026-01-01T12:00:00Z", NOON_MS),
        (b"2026-01-01t12:00:00z", NOON_MS),
        ("2026-01-01 14:00:00+02:00", NOON_MS),
        ("2026-01-01T07:30:00-04:30", NOON_MS),
        ("2026-01-01T12:00:00.5Z", NOON_MS + 500),
        ("2026-01-01T12:00:00.0001Z", NOON_MS + 1),
        ("2026-01-01T12:00:00.0000000001Z", NOON_MS + 1),
        ("2026-01-01T11:59:59.9999999999Z", NOON_MS),
        ("1970-01-01T00:00:00Z", 0),
        (1, 1),
        (MAX_MS, MAX_MS),
    ],
)
def test_read_instant_is_never_early(given: Any, ms: int) -> None:
    assert scheduled(of(("x-deliver-at", given))).envelope.due == Instant(ms, relative=False)


@pytest.mark.parametrize(
    "given",
    [
        *(1_767_268_800, "1767268800", b"1767268800", field("i", ">I", 1_767_268_800)),
        *(-1, "-1", MAX_MS + 1, None, True, field("d", ">d", 1.0), field("T", ">Q", 2**63)),
        *("2026-01-01T12:00:00", "2026-01-01", "2026-01-01T12:00Z", "2026-02-30T12:00:00Z"),
        *("2026-01-01T12:00:60Z", "2026-01-01T25:00:00Z", "1969-12-31T23:59:59Z", "tomorrow", ""),
        *("2026-01-01T12:00:00+2", "2026-01-01T12:00:00Z ", "2026-W01-1T12:00:00Z"),
        *("2026-01-01T12:00:00+99:99", b"\xff", "0000-01-01T00:00:00Z"),
    ],
)
def test_read_instant_that_is_none_is_refused_by_its_name(given: Any) -> None:
    refusal = refused(of(("x-deliver-at", given)))

    assert refusal.reason is Reason.INVALID
    assert refusal.text.startswith("x-deliver-at: expected ")


def test_read_instant_that_looks_like_seconds_says_so() -> None:
    assert "looks like seconds" in refused(of(("x-deliver-at", b"1767268800"))).text


@pytest.mark.parametrize("given", [1_767_268_800, "1767268800", b"1767268800"])
def test_read_epoch_of_a_scheduler_is_in_seconds(given: Any) -> None:
    due = scheduled(of(("scheduler-epoch", given))).envelope.due

    assert due == Instant(NOON_MS, relative=False)


@pytest.mark.parametrize("given", [NOON_MS, str(NOON_MS), -1, None, b"noon", 10**17])
def test_read_epoch_that_is_none_is_refused(given: Any) -> None:
    assert refused(of(("scheduler-epoch", given))).text.startswith("scheduler-epoch: expected ")


def test_read_message_without_a_time_is_due_now() -> None:
    assert scheduled(of(("tenant", b"t"))).envelope.due == Instant(0, relative=True)


TIMES = ("x-delay", "x-deliver-at", "x-retry-after", "scheduler-epoch")


@pytest.mark.parametrize("first", TIMES)
@pytest.mark.parametrize("second", [*TIMES, "X-Delay"])
def test_read_two_times_are_refused_with_both_names(first: str, second: str) -> None:
    text = refused(of((first, b"1"), (second, b"1"))).text

    assert text.endswith(f"got {first}, {second.lower()}")


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
    assert read(queued("m", x_cancel=id)) == Cancel(queued("m", x_cancel=id), "r", first)


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


def test_read_message_without_place_is_remembered() -> None:
    assert scheduled(queued(), remember="7m").envelope.remember_ms == 420_000
    assert scheduled(placed(1), remember="7m").envelope.remember_ms is None


# --- route and target ---


@pytest.mark.parametrize("given", ["s", b"s"])
def test_read_route_is_the_one_named(given: Any) -> None:
    assert scheduled(of(("X-Route", given))).route == "s"


@pytest.mark.parametrize("given", ["t", b"t", b"\xff", None, "", True, Ext(AMQP, b"V")])
def test_read_route_that_is_not_there_is_refused(given: Any) -> None:
    assert refused(of(("x-route", given))).text.startswith("x-route: expected ")


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

    assert isinstance(request, Cancel)
    assert (request.id, request.route) == (expected, "r")


@pytest.mark.parametrize("given", [None, "", b"", True, "true", b"true"])
@pytest.mark.parametrize(
    ("arrival", "expected"), [(queued("m"), "m"), (placed(1, key=b"order"), "order")]
)
def test_read_cancel_without_id_means_the_messages_own(
    given: Any, arrival: Arrival, expected: str
) -> None:
    arrival = Arrival(
        arrival.body,
        id=arrival.id,
        key=arrival.key,
        place=arrival.place,
        headers=named({"x_cancel": given}),
    )
    request = read(arrival)

    assert isinstance(request, Cancel)
    assert request.id == expected


@pytest.mark.parametrize("arrival", [queued("", x_cancel=b""), placed(1, x_cancel=b"true")])
def test_read_cancel_of_nothing_is_refused(arrival: Arrival) -> None:
    assert refused(arrival).text.startswith("x-cancel: expected an id")


@pytest.mark.parametrize("given", [False, b"\xff", 1.5])
def test_read_cancel_of_no_text_is_refused(given: Any) -> None:
    assert isinstance(read(queued("m", x_cancel=given)), Refusal)


def test_read_tombstone_cancels_where_the_key_replaces() -> None:
    tombstone = placed(1, None, key=b"order")

    assert read(tombstone, on_conflict="replace") == Cancel(tombstone, "r", "order")
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
    assert isinstance(read(placed(1, x_round=given), to="origin"), Refusal)


def test_read_failure_without_origin_is_refused() -> None:
    arrival = Arrival(b"body", id="m")

    assert refused(arrival, to="origin").reason is Reason.UNROUTABLE
