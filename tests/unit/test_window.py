"""The window that bounds what is outstanding: a broker of a known rate, an explicit clock."""

from collections import deque
from random import Random

import pytest

from duebridge.worker.lanes.window import EMPTY, Load, Window

MIB = 2**20
BOUND, BATCH, ONE = Load(5000, 64 * MIB), Load(500, MIB // 2), Load(1, 1)
HALF_DEADLINE_S = 7.5


class Line:
    """A window to a broker that settles one batch after the other, at a rate the test sets."""

    def __init__(self, floor: Load = BATCH, bound: Load = BOUND, each_bytes: int = 10) -> None:
        self.now_s = 100.0
        self.each_bytes = each_bytes
        self.floor = floor.within(bound)
        self.window = Window(bound, BATCH, floor, HALF_DEADLINE_S, lambda: self.now_s)
        self.out: deque[tuple[float, Load]] = deque()

    def take(self, count: int) -> int:
        """Send what there is room for; return how many."""
        room = self.window.room()
        count = min(count, room.envelopes, max(1, room.size_bytes // self.each_bytes))
        if count:
            load = Load(count, count * self.each_bytes)
            self.window.take(load)
            self.out.append((self.now_s, load))
        return count

    def fill(self, batch: int = 500) -> None:
        while self.take(batch):
            pass

    def settle(self, per_s: float, confirmed: float = 1.0) -> float:
        """Let the oldest batch be settled; return how long it was out."""
        taken_s, load = self.out.popleft()
        self.now_s += load.envelopes / per_s
        part = Load(int(load.envelopes * confirmed), int(load.size_bytes * confirmed))
        self.window.give_back(load, part)
        return self.now_s - taken_s

    def run(self, per_s: float, batches: int, batch: int = 500) -> list[int]:
        """Keep it full meanwhile; return what was out after each."""
        seen = []
        for _ in range(batches):
            self.fill(batch)
            seen.append(self.window.outstanding.envelopes)
            self.settle(per_s)
        return seen


def test_window_starts_with_one_batch() -> None:
    line = Line()
    assert line.window.room() == BATCH
    line.fill()
    assert line.window.outstanding.envelopes == 500
    assert line.window.room() == EMPTY


def test_window_doubles_while_confirms_keep_up_to_its_bound() -> None:
    line = Line()
    sizes = [line.window.size.envelopes]
    for most in line.run(per_s=100_000, batches=60):
        if most != sizes[-1]:
            sizes.append(most)
    assert sizes == [500, 1000, 2000, 4000, 5000]


@pytest.mark.parametrize("batch", [500, 125, 60, 7])
@pytest.mark.parametrize("floor", [BATCH, ONE])
def test_window_of_a_slow_broker_holds_half_a_deadline_and_nothing_times_out(
    floor: Load, batch: int
) -> None:
    line = Line(floor)
    waits = []
    for _ in range(2000 // batch * 3):
        line.fill(batch)
        assert line.window.outstanding.envelopes <= 600
        waits.append(line.settle(per_s=80))
    assert max(waits) < 2 * HALF_DEADLINE_S


@pytest.mark.parametrize(("floor", "least"), [(BATCH, 500), (ONE, 1)])
def test_window_of_a_stalling_broker_shrinks_to_its_floor(floor: Load, least: int) -> None:
    line = Line(floor)
    line.run(per_s=100_000, batches=40)
    line.run(per_s=1 / 60, batches=8, batch=1000)
    line.run(per_s=1 / 60, batches=20, batch=1)
    assert line.window.size.envelopes == least


def test_window_is_not_shrunk_by_a_trickle() -> None:
    line = Line()
    line.run(per_s=100_000, batches=60)
    while line.out:
        line.settle(100_000)
    before = line.window.size
    for _ in range(200):
        line.now_s += 1
        line.take(3)
        line.settle(per_s=1)
    assert line.window.size == before


def test_window_recovers_after_a_slow_hour() -> None:
    line = Line(ONE)
    line.run(per_s=10, batches=20, batch=50)
    assert line.window.size.envelopes == 75
    line.run(per_s=100_000, batches=300, batch=50)
    assert line.window.size == BOUND._replace(size_bytes=line.window.size.size_bytes)


def test_restart_begins_with_one_batch_and_measures_only_what_follows() -> None:
    line = Line()
    line.run(per_s=100_000, batches=60)
    line.fill()
    line.window.restart()
    assert line.window.size == BATCH
    assert line.window.room() == EMPTY  # what is out is still out
    while line.out:
        line.settle(100_000, confirmed=0)
    assert line.window.room() == BATCH
    line.run(per_s=80, batches=3)
    assert line.window.size.envelopes == 600


def test_window_counts_only_the_time_in_which_something_is_out() -> None:
    line = Line()
    line.fill()
    line.settle(per_s=100_000)
    size = line.window.size
    line.now_s += 3600
    line.fill()
    while line.out:
        line.settle(per_s=100_000)
    assert line.window.size.envelopes == 2 * size.envelopes


def test_window_of_large_messages_is_bound_by_bytes() -> None:
    line = Line(each_bytes=MIB)
    line.run(per_s=4, batches=60, batch=8)
    line.fill(8)
    assert line.window.outstanding.size_bytes <= 4 * HALF_DEADLINE_S * MIB
    assert line.window.outstanding.envelopes > 8


def test_room_admits_one_larger_than_everything_if_nothing_is_out() -> None:
    window = Window(Load(10, 100), Load(10, 100), ONE, HALF_DEADLINE_S, lambda: 0.0)
    assert window.room().envelopes == 10
    window.take(Load(1, 500))
    assert window.room() == EMPTY
    window.give_back(Load(1, 500), Load(1, 500))
    assert window.room().envelopes > 0


def test_bound_below_a_batch_wins() -> None:
    window = Window(Load(3, 100), BATCH, BATCH, HALF_DEADLINE_S, lambda: 0.0)
    assert window.size == Load(3, 100)


class Reference:
    """What a window may hold: the slower of the rates of its last two full times."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._rates: list[float] = []
        self._busy_s, self._confirmed = -1.0, EMPTY

    def note(self, size: Load, confirmed: Load, busy_s: float, *, has_settled: bool) -> None:
        """Note a step: what was confirmed while `size` was the window."""
        if self._busy_s >= 0:
            self._busy_s += busy_s
            self._confirmed = self._confirmed.plus(confirmed)
            if self._confirmed.reaches(size):
                self._rates.append(self._confirmed.envelopes / max(self._busy_s, 1e-6))
                self._busy_s, has_settled = -1.0, False
        if self._busy_s < 0 and not has_settled and self._line.window.room() == EMPTY:
            self._busy_s, self._confirmed = 0.0, EMPTY

    def restart(self) -> None:
        self._rates, self._busy_s = [], -1.0

    @property
    def most(self) -> float:
        if not self._rates:
            return BATCH.envelopes
        return max(self._line.floor.envelopes, min(self._rates[-2:]) * HALF_DEADLINE_S)


@pytest.mark.parametrize("seed", range(60))
def test_window_is_never_over_what_its_last_two_full_times_settle(seed: int) -> None:
    random = Random(seed)
    line = Line(random.choice([BATCH, ONE]), each_bytes=random.choice([10, 2000, 100_000]))
    reference = Reference(line)
    steps = ["take", "take", "settle", "settle", "idle"] + ["restart"] * (seed % 3 == 0)
    for _ in range(400):
        size, began_s, part, out = line.window.size, line.now_s, EMPTY, len(line.out)
        match random.choice(steps):
            case "take":
                line.take(random.randint(1, 500))
            case "settle" if line.out:
                share = random.choice([1.0, 1.0, 0.5, 0.0])
                load = line.out[0][1]
                part = Load(int(load.envelopes * share), int(load.size_bytes * share))
                line.settle(random.choice([5, 80, 3000, 50_000]), share)
            case "idle" if not line.out:
                line.now_s += random.random() * 100
                began_s = line.now_s
            case "restart":
                line.window.restart()
                reference.restart()
                continue  # it measures from the next batch on
        reference.note(size, part, line.now_s - began_s, has_settled=len(line.out) <= out)
        assert line.window.size.envelopes <= reference.most + 1e-6
        assert line.window.size.at_least(line.floor) == line.window.size
        assert line.window.size.within(BOUND) == line.window.size
        assert line.window.room().at_least(EMPTY) == line.window.room()
        sums = map(sum, zip(*(load for _, load in line.out), strict=True))
        assert line.window.outstanding == Load(*sums)
