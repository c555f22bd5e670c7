"""The day itself: what is scheduled, what is announced, who is killed, and when it is over."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from duebridge.audit import Verdict, audit
from duebridge.producer import Producer
from rich.console import Console

from board import Board, Counts
from crew import Crew
from departures import Departure
from ledger import Ledger
from report import ALL
from stage import Stage
from store_view import StoreView
from timetable import ROUTES, News, Timetable, envelope_of, news_of, route_of

DAY_S = 30.0
LEAD_S = 4.5  # from now to the first boarding: time to schedule all, and for the first news
KILL_AFTER = 0.45  # of the day
REST_WITHIN_S = 20.0  # after the last due instant: some leases and some retries
PAUSE_S = 0.05

Act = tuple[int, Callable[[], None]]


class Show:
    """One performance: `schedule`, `perform`, `verdicts`, in this order."""

    def __init__(
        self,
        console: Console,
        stage: Stage,
        producer: Producer,
        view: StoreView,
        crew: Crew,
        departures: Sequence[Departure],
    ) -> None:
        self._stage = stage
        self._producer = producer
        self._view = view
        self._crew = crew
        self._departures = departures
        self._ledger = Ledger()
        self._timetable = Timetable.of(departures, now_ms() + int(LEAD_S * 1000), DAY_S)
        self._board = Board(console, self._clock, self._counts)

    def schedule(self) -> None:
        """Hand every departure of the day to the delay store; all of them are accepted."""
        for route in ROUTES:
            mine = [each for each in self._departures if route_of(each) == route]
            envelopes = [envelope_of(each, self._timetable) for each in mine]
            receipts = self._producer.schedule_many(route, envelopes)
            for envelope, receipt in zip(envelopes, receipts, strict=True):
                self._ledger.note_receipt(envelope, receipt)
        self._board.announce(f"{len(self._departures)} envelopes wait in the store")

    def perform(self) -> None:
        """Live through the day until the store is empty, or until it should have been long ago."""
        with self._board.shown():
            for at_ms, act in self._acts():
                wait_until(at_ms)
                act()
            self._wait_at_rest()

    def _acts(self) -> Iterator[Act]:
        """Give what is to be done, in order of time."""
        acts: list[Act] = [
            (each.at_ms, partial(self._announce, each))
            for each in news_of(self._departures, self._timetable)
        ]
        kill_at_ms = self._timetable.start_ms + int(DAY_S * 1000 * KILL_AFTER)
        acts.append((kill_at_ms, self._kill))
        yield from sorted(acts, key=lambda act: act[0])

    def _announce(self, news: News) -> None:
        route, flight = route_of(news.departure), news.departure.id
        if news.due_ms is None:
            answer = self._producer.cancel(route, flight)
            self._ledger.note_cancel(route, flight, answer)
            self._board.tell(f"cancel {flight}: {answer}")
        else:
            answer = self._producer.reschedule(route, flight, at=news.due_ms)
            self._ledger.note_reschedule(route, flight, answer, news.due_ms)
            late = f"{news.departure.delay_min} minutes late"
            self._board.tell(f"reschedule {flight}, {late}: {answer}")

    def _kill(self) -> None:
        held = self._crew.kill_first(self._view.stores())
        story = f"worker 1 killed (SIGKILL), messages in its hands: {held}"
        self._board.announce(f"{story}; workers left: {self._crew.alive}", style="bold red")

    def _wait_at_rest(self) -> None:
        last_due_ms = self._ledger.last_due_ms
        wait_until(last_due_ms)
        give_up_at_ms = last_due_ms + int(REST_WITHIN_S * 1000)
        while not self._view.is_empty and now_ms() < give_up_at_ms:
            time.sleep(PAUSE_S)
        over = "the store is empty" if self._view.is_empty else "gave up: the store is not empty"
        moved = f"{self._ledger.rescheduled} envelopes were rescheduled on the way"
        self._board.announce(f"{over}; {moved}")

    def verdicts(self) -> dict[str, Verdict]:
        """Return the audit's verdict on each route and on all, of what the brokers have to show."""
        seen = self._stage.read_all()
        held = {route: self._view.held(route) for route in ROUTES}
        by_route = {
            route: audit(self._ledger.history([route], seen, held[route])) for route in ROUTES
        }
        left = {name: state for each in held.values() for name, state in each.items()}
        return by_route | {ALL: audit(self._ledger.history(ROUTES, seen, left))}

    def _clock(self) -> str:
        return self._timetable.clock_at(now_ms())

    def _counts(self) -> dict[str, Counts]:
        return {route: self._counts_of(route) for route in ROUTES}

    def _counts_of(self, route: str) -> Counts:
        poll = self._view.poll(route)
        return Counts(
            poll.pending,
            poll.ready + poll.suspect,
            poll.unack,
            poll.retry,
            self._stage.count(route, is_dead=False),
            self._stage.count(route, is_dead=True) + poll.dead,
        )


def now_ms() -> int:
    """Return the time in epoch ms."""
    return int(time.time() * 1000)


def wait_until(at_ms: int) -> None:
    """Return at an instant, or at once where it has passed."""
    time.sleep(max(0, at_ms - now_ms()) / 1000)
