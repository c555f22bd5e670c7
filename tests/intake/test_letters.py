"""What an intake refuses: confirmed as a dead letter, or kept, before its broker forgets it."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from duebridge.config.fields import MAX_BODY_BYTES
from duebridge.intake.kept import as_dead_envelopes
from duebridge.intake.requests import RefusedMessage
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.ports.source import Arrival
from duebridge.store.wire.record import EnvelopeContent, pack
from duebridge.store.wire.replies import Entry
from tests.intake.entrance import DEAD, Entrance, placed, queued

Opened = Callable[..., Entrance]
REJECTED = Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "E", "too large")


@pytest.mark.parametrize(
    ("arrival", "reason"),
    [
        (queued("a", x_delay=-1), "invalid"),
        (queued("a", x_delay=31 * 86_400_000), "invalid"),
        (queued("a", b"x" * 1025), "too_large"),
        (queued("a", scheduler_target_topic="secret"), "unroutable"),
        (queued("a", x_route="nowhere"), "unroutable"),
    ],
)
def test_refused_message_is_confirmed_as_a_letter_before_it_is_settled(
    entrance: Entrance, arrival: Arrival, reason: str
) -> None:
    entrance.take(queued("b"), arrival, queued("c"))

    (letter,) = entrance.letters()
    assert (letter.target, letter.body, letter.id) == (DEAD, arrival.body, "a")
    assert letter.is_dead_letter
    assert letter.headers[: len(arrival.headers)] == arrival.headers
    assert entrance.reasons() == [reason]
    assert dict(letter.headers)["x-dlq-error-message"]
    assert entrance.ids() == ["b", "c"]
    assert len(entrance.queue.settled) == 3


def test_letter_that_is_not_confirmed_holds_the_batch(entrance: Entrance) -> None:
    confirms: list[bool] = [False]
    failed = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")
    entrance.publisher.script(lambda _: None if confirms[0] else failed)

    assert entrance.take(queued("a", x_delay="soon"), queued("b", x_delay=1000)) == 0
    assert entrance.loop.run_once() == 0
    assert entrance.queue.settled == []
    assert entrance.queue.kept_alive == 2
    entrance.now_s += 3.0
    assert entrance.loop.waiting_s() == 3.0
    assert entrance.ids() == ["b"]

    confirms[0] = True
    assert entrance.loop.run_once() == 2
    assert entrance.reasons() == ["invalid"]
    assert entrance.loop.waiting_s() == 0


def test_letters_that_were_confirmed_are_not_sent_again(entrance: Entrance) -> None:
    held = {"b"}
    failed = Outcome(Verdict.FAILED, Reason.INVALID, "E", "not now")
    entrance.publisher.script(lambda each: failed if each.id in held else None)

    entrance.take(*(queued(name, x_delay="soon") for name in "abc"))
    held.clear()
    entrance.loop.run_once()

    assert [each.id for each in entrance.letters()] == ["a", "c", "b"]


def test_held_letter_of_a_message_that_another_member_has_by_now_is_left_to_it(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")
    confirms: list[bool] = [False]
    entrance.publisher.script(lambda _: None if confirms[0] else held)
    bodies = (b"1", b"2", b"3")
    entrance.take(*(placed(n, body, x_delay=b"soon") for n, body in enumerate(bodies)))

    source = entrance.loop.source
    monkeypatch.setattr(source, "owns", lambda arrival: arrival.body != b"2")
    confirms[0] = True
    entrance.loop.run_once()

    assert [each.body for each in entrance.letters()] == [b"1", b"3"]


def content(entry: Entry) -> EnvelopeContent:
    assert entry.content is not None
    return entry.content


def test_letter_that_its_target_rejects_is_kept_dead_and_holds_nobody(entrance: Entrance) -> None:
    entrance.publisher.script(lambda each: REJECTED if each.body == b"bad" else None)
    bad = queued("a", b"bad", x_delay="soon", tenant="t")
    assert entrance.take(queued("b"), bad, queued("c", x_delay="soon"), queued("d")) == 4

    assert entrance.ids() == ["b", "d"]
    assert [each.id for each in entrance.letters()] == ["c"]
    (dead,) = entrance.dead()
    assert (content(dead).body, content(dead).headers) == (b"bad", bad.headers)
    assert dead.flight.reason == Reason.INVALID
    assert dead.flight.error_message.startswith("x-delay: expected a whole number")


def test_kept_letter_is_the_workers_to_send_once_its_target_takes_it(entrance: Entrance) -> None:
    entrance.publisher.script(lambda _: REJECTED)
    entrance.take(queued("a", x_delay="soon"))

    (dead,) = entrance.dead()
    shunted = entrance.route().of(dead.id).shunt(1, 60_000)
    assert shunted.ids == [dead.id]


@pytest.mark.parametrize("id", ["a", "box:late:0:1:1700000000000"])
def test_rejected_letter_that_comes_again_is_kept_once(entrance: Entrance, id: str) -> None:
    entrance.publisher.script(lambda _: REJECTED)
    bad = queued("a", x_delay="soon") if id == "a" else placed(1, x_delay="soon")
    entrance.take(bad)
    entrance.take(replace(bad, is_redelivered=True))
    entrance.take(queued("other", b"good"), queued("a", b"other", x_delay="never"))

    assert len(entrance.dead()) == 2
    assert entrance.ids() == ["other"]


def test_rejected_update_of_a_key_leaves_what_waits_under_it(opened: Opened) -> None:
    entrance = opened(on_conflict="replace")
    entrance.publisher.script(lambda _: REJECTED)
    entrance.take(placed(1, b"1", key=b"k", x_delay=b"5000"))
    entrance.take(placed(2, b"2", key=b"k", x_delay=b"soon"))

    assert entrance.ids() == ["k"]
    assert [content(each).body for each in entrance.dead()] == [b"2"]


def test_rejected_letter_of_any_size_is_kept_whole_in_parts(entrance: Entrance) -> None:
    entrance.publisher.script(lambda _: REJECTED)
    body = b"".join(b"%09d\n" % number for number in range(260_000))
    assert entrance.take(queued("a", body, x_delay=5000)) == 1

    parts = {dict(content(each).headers)["x-dlq-part"]: content(each) for each in entrance.dead()}
    assert b"".join(parts[name].body or b"" for name in ("1/3", "2/3", "3/3")) == body
    assert dict(parts["1/3"].headers)["x-delay"] == 5000


@pytest.mark.parametrize(
    "bad",
    [
        Arrival(b"body", id="a", key=b"k" * 2**21),
        queued("a", x_delay="soon", name="lone \udcff surrogate"),
        queued("a", x_delay="soon", number=2**64),
    ],
)
def test_rejected_letter_that_no_envelope_can_be_is_kept_as_text(
    entrance: Entrance, bad: Arrival
) -> None:
    entrance.publisher.script(lambda _: REJECTED)
    assert entrance.take(bad, queued("b")) == 2

    parts = [content(each).body or b"" for each in entrance.dead()]
    assert b"body" in parts
    assert any(part.startswith(b"{'key': ") for part in parts)


def test_letters_that_are_held_do_not_keep_rejected_ones_from_the_store(
    entrance: Entrance,
) -> None:
    away = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")
    entrance.publisher.script(lambda each: REJECTED if each.id == "a" else away)
    assert entrance.take(queued("a", x_delay="soon"), queued("b", x_delay="soon")) == 0
    assert len(entrance.dead()) == 1

    entrance.publisher.script(lambda _: None)
    assert entrance.loop.run_once() == 2
    assert [each.id for each in entrance.letters()] == ["b"]
    assert len(entrance.dead()) == 1


def test_message_whose_letter_was_not_out_is_taken_in_once_its_route_allows_it(
    entrance: Entrance,
) -> None:
    entrance.publisher.is_available = False
    messages = [placed(number, b"x" * size) for number, size in ((1, 2000), (2, 1), (3, 1))]
    assert entrance.take(*messages) == 0

    routes = entrance.config.routes
    allowing = {**routes, "r": routes["r"].model_copy(update={"max_body": 4096})}
    entrance.start_again(entrance.config.model_copy(update={"routes": allowing}))

    assert entrance.take(*messages) == 3
    assert len(entrance.ids()) == 3


def test_envelope_that_could_not_be_read_again_is_refused_alone(entrance: Entrance) -> None:
    beyond = Arrival(b"body", id="big", key=b"k" * 2**21)
    entrance.take(queued("a"), beyond, queued("b"))

    assert entrance.ids() == ["a", "b"]
    assert entrance.reasons() == ["too_large"]

    entrance.take(placed(1), placed(2, key=b"k" * 2**21), placed(3))
    assert len(entrance.ids()) == 4
    assert entrance.reasons() == ["too_large"] * 2


def test_record_says_what_waits_and_for_what(entrance: Entrance) -> None:
    failed = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")
    entrance.publisher.script(lambda _: failed)
    entrance.take(queued("a", x_delay="soon"), queued("b"))

    entrance.now_s += 2.0
    record = entrance.loop.record()
    assert (record.name, record.is_up, record.lag) == ("in", True, 2)
    assert record.error == "1 dead letters target_failed: E: no topic"
    assert record.waiting_ms == 2000


def test_exhausted_message_is_taken_in_once_its_route_has_more_attempts(opened: Opened) -> None:
    entrance = opened(to="origin", source={"broker": "box", "queue": "q"})
    entrance.publisher.is_available = False
    last = placed(1, x_round=b"2", x_message_id=b"first/2")
    others = [placed(number) for number in range(2, 8)]
    entrance.queue.put(last, *others)
    assert entrance.loop.run_once() == 0

    routes = entrance.config.routes
    retry = routes["r"].retry.model_copy(update={"max_attempts": 9})
    allowing = {**routes, "r": routes["r"].model_copy(update={"retry": retry})}
    entrance.start_again(entrance.config.model_copy(update={"routes": allowing}))
    entrance.take(last, *others)
    assert "first/3" in entrance.ids()


def test_letter_that_is_just_too_large_to_be_a_part_is_kept() -> None:
    for room in range(40):
        headers = (("h", b"h" * (MAX_BODY_BYTES - room)),)
        arrival = Arrival(b"x" * (MAX_BODY_BYTES + 1), id="a", headers=headers)
        parts = as_dead_envelopes(RefusedMessage(arrival, "r", Reason.TOO_LARGE, "too large"))
        whole = b"".join(part.envelope.body or b"" for part in parts)
        assert whole.endswith(b"x" * (MAX_BODY_BYTES + 1))
        assert all(pack(part.envelope) for part in parts)
