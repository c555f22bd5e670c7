"""The window that bounds what is outstanding: a broker of a known rate, an explicit clock."""

from collections import deque
from random import Random

import pytest

from duebridge.worker.lanes.window import EMPTY, SMALL, Load, Window

MIB = 2**20
BOUND, BATCH, ONE = Load(5000, 64 * MIB), 500, Load(1, 1)
HALF_DEADLINE_S = 7.5


class Line:
    """A window to a broker that settles one batch after the other, at a rate the test sets."""

    def __init__(self, floor: Load = SMALL, bound: Load = BOUND, each_bytes: int = 10) -> None:
        self.now_s = 100.0
        self.each_bytes = each_bytes
        self.floor = floor.within(bound)
        self.window = Window(bound, BATCH, SMALL, floor, HALF_DEADLINE_S, lambda: self.now_s)
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


def test_window_starts_small() -> None:
    line = Line()
    assert line.window.room() == SMALL
    line.fill()
    assert line.window.outstanding.envelopes == SMALL.envelopes
    assert line.window.room() == EMPTY


def test_window_doubles_while_confirms_keep_up_to_its_bound() -> None:
    line = Line()
    sizes = [line.window.size.envelopes]
    for _ in range(60):
        line.run(per_s=100_000, batches=1)
        if line.window.size.envelopes != sizes[-1]:
            sizes.append(line.window.size.envelopes)
    assert sizes == [32, 64, 128, 256, 512, 1024, 2048, 4096, 5000]


@pytest.mark.parametrize("batch", [500, 125, 60, 7])
@pytest.mark.parametrize("floor", [SMALL, ONE])
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


@pytest.mark.parametrize("per_s", [40, 120, 3000])
def test_windows_that_share_a_broker_time_nothing_out(per_s: float) -> None:
    """Eight workers begin at once; the broker settles one batch after the other."""
    now_s, queue = [100.0], deque[tuple[Window, float, Load]]()
    windows = [
        Window(BOUND, BATCH, SMALL, ONE, HALF_DEADLINE_S, lambda: now_s[0]) for _ in range(8)
    ]
    waits = []
    for _ in range(400):
        for window in windows:
            while (room := window.room()).envelopes:
                load = Load(min(room.envelopes, BATCH), 10 * min(room.envelopes, BATCH))
                window.take(load)
                queue.append((window, now_s[0], load))
        window, taken_s, load = queue.popleft()
        now_s[0] += load.envelopes / per_s
        window.give_back(load, load)
        waits.append(now_s[0] - taken_s)
    assert max(waits) < 2 * HALF_DEADLINE_S


@pytest.mark.parametrize(("floor", "least"), [(SMALL, 32), (ONE, 1)])
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
    assert line.window.size.envelopes == 74
    line.run(per_s=100_000, batches=300, batch=50)
    assert line.window.size == BOUND._replace(size_bytes=line.window.size.size_bytes)


def test_restart_begins_as_at_the_start_and_measures_only_what_follows() -> None:
    line = Line()
    line.run(per_s=100_000, batches=60)
    line.fill()
    line.window.restart()
    assert line.window.size == SMALL
    assert line.window.room() == EMPTY  # what is out is still out
    while line.out:
        line.settle(100_000, confirmed=0)
    assert line.window.room() == SMALL
    line.run(per_s=80, batches=12)
    assert line.window.size.envelopes == 600


def test_restart_quarters_a_small_window_down_to_its_floor() -> None:
    window = Line(ONE).window
    sizes = []
    for _ in range(4):
        window.restart()
        sizes.append(window.size.envelopes)
    assert sizes == [8, 2, 1, 1]


def test_wait_for_room_doubles_until_a_rate_is_known() -> None:
    line = Line(ONE)
    line.fill()
    waits = []
    for _ in range(7):
        waits.append(line.window.half_settles_in_s())
        line.now_s += waits[-1]
    assert waits == pytest.approx([0.05, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
    line.now_s += 60
    assert line.window.half_settles_in_s() == HALF_DEADLINE_S / 4
    line.settle(per_s=80)
    line.run(per_s=80, batches=9)
    line.fill()
    assert line.window.half_settles_in_s() == pytest.approx(HALF_DEADLINE_S / 2, rel=0.2)


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


def test_window_that_cut_a_batch_grows_though_bytes_are_left() -> None:
    """Two messages do not fit, and one leaves room: it would stay so for ever."""
    window = Window(BOUND, BATCH, SMALL, ONE, HALF_DEADLINE_S, lambda: 0.0)
    one = Load(1, SMALL.size_bytes * 2 // 3)
    for _ in range(2):
        window.take(one, is_cut=True)
        window.give_back(one, one)
    assert window.size == SMALL.plus(SMALL)


def test_room_admits_one_larger_than_everything_if_nothing_is_out() -> None:
    window = Window(Load(10, 100), 10, Load(10, 100), ONE, HALF_DEADLINE_S, lambda: 0.0)
    assert window.room().envelopes == 10
    window.take(Load(1, 500))
    assert window.room() == EMPTY
    window.give_back(Load(1, 500), Load(1, 500))
    assert window.room().envelopes > 0


def test_bound_below_a_start_wins() -> None:
    window = Window(Load(3, 100), BATCH, SMALL, SMALL, HALF_DEADLINE_S, lambda: 0.0)
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
            return SMALL.envelopes
        return max(self._line.floor.envelopes, min(self._rates[-2:]) * HALF_DEADLINE_S)


@pytest.mark.parametrize("seed", range(60))
def test_window_is_never_over_what_its_last_two_full_times_settle(seed: int) -> None:
    random = Random(seed)
    line = Line(random.choice([SMALL, ONE]), each_bytes=random.choice([10, 2000, 100_000]))
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
