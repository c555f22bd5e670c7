"""A lone confirm is acked at once; those of a steady load share an ack, and none is forgotten."""

from collections.abc import Callable

from duebridge.store.transitions import RememberedId
from duebridge.worker.settlement import ACK_EVERY_S, Confirmed
from tests.support.floor import Floor

ACK_EVERY_MS = int(ACK_EVERY_S * 1000)


def deliver(floor: Floor, *ids: str) -> None:
    floor.schedule(*ids, delay="1ms")
    floor.worker.wake(floor.views["r"])
    floor.turn(4)
    assert floor.arrived()[-len(ids) :] == list(ids)


def test_ack_of_a_lone_confirm_is_sent_at_once(floor: Floor) -> None:
    deliver(floor, "a")
    assert floor.state("a") is None


def test_acks_soon_after_another_wait_for_the_next_batch(floor: Floor) -> None:
    for name in "abc":
        deliver(floor, name)
    assert [floor.state(name) for name in "abc"] == [None, "unack", "unack"]
    floor.advance(ACK_EVERY_MS - 12)
    deliver(floor, "d")
    assert [floor.state(name) for name in "bcd"] == [None] * 3


def test_acks_that_no_batch_takes_along_are_sent_when_overdue(floor: Floor) -> None:
    for name in "ab":
        deliver(floor, name)
    sleep_ms = floor.worker.sleep_s() * 1000
    assert ACK_EVERY_MS < sleep_ms <= 2 * ACK_EVERY_MS
    floor.turn(2 * ACK_EVERY_MS)
    assert floor.state("b") is None


def test_drain_sends_the_acks_that_wait(floor: Floor) -> None:
    for name in "ab":
        deliver(floor, name)
    floor.worker.drain(1)
    assert floor.state("b") is None


def test_swap_of_routes_still_sends_the_acks_that_wait(floor: Floor) -> None:
    for name in "ab":
        deliver(floor, name)
    floor.worker.swap([])
    floor.turn(2 * ACK_EVERY_MS)
    assert floor.state("b") is None


def test_ack_of_a_hundred_does_not_wait(floor: Floor) -> None:
    deliver(floor, "a")
    many = [f"id{number:03d}" for number in range(100)]
    deliver(floor, *many)
    assert {floor.state(name) for name in many} == {None}


def test_joined_confirms_keep_what_is_remembered_with_its_id() -> None:
    first = Confirmed((b"1",), ("a",), (RememberedId(0, 5, b"x"),))
    second = Confirmed((b"2", b"3"), ("b", "c"), (RememberedId(1, 7, b"y"),))
    joined = first.joined(second)
    assert (joined.tokens, joined.ids) == ((b"1", b"2", b"3"), ("a", "b", "c"))
    assert joined.remembered == (RememberedId(0, 5, b"x"), RememberedId(2, 7, b"y"))


def test_ack_of_the_largest_batch_takes_along_what_waits(build_floor: Callable[..., Floor]) -> None:
    floor = build_floor(worker={"batch": 1000})
    for name in "abc":
        deliver(floor, name)
    many = [f"id{number:04d}" for number in range(1000)]
    floor.schedule(*many, delay="1ms")
    floor.advance(1)
    floor.stores["r"].promote()  # as another worker does
    floor.worker.wake(floor.views["r"])
    floor.turn()
    assert {floor.state(name) for name in ("b", "c", *many)} == {None}
