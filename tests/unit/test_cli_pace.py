"""The pace of a long work, on a clock that only the test moves."""

import pytest

from duebridge.cli.pace import Pacer, parse_rate
from duebridge.errors import EnvelopeError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, span: float) -> None:
        assert span > 0
        self.now += span


@pytest.mark.parametrize(("rate", "size"), [(None, 100), (1, 1), (5, 1), (50, 5), (100_000, 100)])
def test_batch_size_of_a_rate_is_a_tenth_of_a_second(rate: int | None, size: int) -> None:
    assert Pacer(rate).batch_size(100) == size


def test_wait_lets_a_rate_pass_and_no_burst_after_a_pause() -> None:
    clock = Clock()
    pacer = Pacer(50, clock, clock.sleep)
    for _ in range(21):
        pacer.wait(5)
    assert clock.now == pytest.approx(102.0)
    clock.now += 60
    pacer.wait(5)
    pacer.wait(5)
    assert clock.now == pytest.approx(162.1)


def test_wait_without_a_rate_never_pauses() -> None:
    clock = Clock()
    Pacer(None, clock, clock.sleep).wait(10**6)
    assert clock.now == 100.0


@pytest.mark.parametrize("text", ["5", "0/s", "-1/s", "5/m", "1.5/s", "", "/s"])
def test_parse_rate_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError, match="--rate: expected a whole number a second"):
        parse_rate(text)
