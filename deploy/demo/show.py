"""The day itself, and the live view of it: scheduled, announced, a worker killed, at rest.

On a terminal the view is a table that renews itself; elsewhere a plain line every few seconds.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass
from functools import partial
from typing import NamedTuple

from duebridge.audit import AuditVerdict, audit
from duebridge.envelope import Envelope
from duebridge.producer import Producer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from crew import Crew, StoreView
from departures import (
    ROUTES,
    SCHEDULED_ROUTES,
    TARGETS,
    Departure,
    News,
    Timetable,
    envelope_of,
    news_of,
)
from ledger import ALL, Ledger
from programs import Program, send_all
from stage import Stage

DAY_S = 30.0
LEAD_S = 7.0  # from now to the first boarding: time to schedule all, and for the first news
TAKEN_IN_WITHIN_S = 15.0
KILL_AFTER = 0.45  # of the day
REST_WITHIN_S = 20.0  # after the last due instant: some leases and some retries
PAUSE_S = 0.05
LINE_EVERY_S, LINES_OF_NEWS = 3.0, 6

Act = tuple[int, Callable[[], None]]


class Counts(NamedTuple):
    """How many envelopes of a route are where; the last two as the readers found them."""

    pending: int
    ready: int
    unack: int
    retry: int
    delivered: int
    dead: int

    def __str__(self) -> str:
        return " ".join(f"{name} {count}" for name, count in self._asdict().items() if count)


class Board:
    """Shows what `counts` and `clock` say; may be told events by any thread."""

    def __init__(
        self, console: Console, clock: Callable[[], str], counts: Callable[[], dict[str, Counts]]
    ) -> None:
        self._console, self._clock, self._counts = console, clock, counts
        self._milestones: list[Text] = []
        self._news: deque[Text] = deque(maxlen=LINES_OF_NEWS)
        self._over = threading.Event()

    def tell(self, event: str) -> None:
        """Add a line to the news, which scroll away and are too small for the plain form."""
        self._news.append(Text(f"{self._clock()}  {event}"))

    def announce(self, event: str, *, style: str = "bold") -> None:
        """Add a line that stays in view."""
        line = Text(f"{self._clock()}  {event}", style=style)
        self._milestones.append(line)
        if not self._console.is_terminal:
            self._console.print(line)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the view up to date until the end of the block, and show it once more then."""
        if self._console.is_terminal:
            with Live(console=self._console, get_renderable=self._view, refresh_per_second=4):
                yield
            return
        (printer := threading.Thread(target=self._print_lines, daemon=True)).start()
        try:
            yield
        finally:
            self._over.set()
            printer.join()

    def _print_lines(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._over.wait(LINE_EVERY_S)
            parts = [f"{route}: {counts}" for route, counts in self._counts().items()]
            self._console.print(f"{self._clock()}  {' | '.join(parts)}", soft_wrap=True)

    def _view(self) -> Group:
        news = [*self._news]
        blank = [Text()] * (LINES_OF_NEWS - len(news))
        return Group(self._table(), *self._milestones, *news, *blank)

    def _table(self) -> Table:
        title = f"New York, {self._clock()}"
        table = Table(title=title, box=SIMPLE_HEAD, title_style="bold", title_justify="left")
        for name in ("route", "target", *Counts._fields):
            table.add_column(name, justify="right" if name in Counts._fields else "left")
        for route, counts in self._counts().items():
            cells = (str(count) if count else "·" for count in counts)
            table.add_row(route, TARGETS[route], *cells)
        return table


@dataclass
class Show:
    """One performance: `schedule`, `perform`, `verdicts`, in this order."""

    console: InitVar[Console]
    stage: Stage
    producer: Producer
    view: StoreView
    crew: Crew
    departures: Sequence[Departure]
    programs: Mapping[str, Program]  # by the route that their calls come to

    def __post_init__(self, console: Console) -> None:
        """Set the first boarding a moment ahead."""
        self._ledger = Ledger()
        self._timetable = Timetable.of(self.departures, now_ms() + int(LEAD_S * 1000), DAY_S)
        self._board = Board(console, lambda: self._timetable.clock_at(now_ms()), self._counts)

    def schedule(self) -> None:
        """Have every departure of the day in the delay store; all of them are accepted."""
        for route in SCHEDULED_ROUTES:
            envelopes = self._envelopes(route)
            receipts = self.producer.schedule_many(route, envelopes)
            for envelope, receipt in zip(envelopes, receipts, strict=True):
                self._ledger.note_receipt(envelope, receipt)
        sent = {route: self._envelopes(route) for route in self.programs}
        send_all([(self.programs[route], envelopes) for route, envelopes in sent.items()])
        for route, envelopes in sent.items():
            for envelope in envelopes:
                self._ledger.note_sent(route, envelope)
        self._wait_taken_in({route: len(envelopes) for route, envelopes in sent.items()})
        by_intake = sum(map(len, sent.values()))
        self._board.announce(
            f"{len(self.departures)} envelopes wait in the store; {by_intake} of them came through"
            " the intakes, from programs that know nothing of duebridge"
        )

    def _envelopes(self, route: str) -> list[Envelope]:
        mine = (each for each in self.departures if each.route == route)
        return [envelope_of(each, self._timetable) for each in mine]

    def _wait_taken_in(self, counts: Mapping[str, int]) -> None:
        """Wait, so that the news of the day find every call; what is missing ends as lost."""
        give_up_at_ms = now_ms() + int(TAKEN_IN_WITHIN_S * 1000)
        while now_ms() < give_up_at_ms and any(
            self.view.stores[route].next().envelopes < count for route, count in counts.items()
        ):
            time.sleep(PAUSE_S)

    def perform(self) -> None:
        """Live through the day until the store is empty, or until it should have been long ago."""
        with self._board.shown():
            for at_ms, act in self._acts():
                wait_until(at_ms)
                act()
            self._wait_at_rest()

    def _acts(self) -> list[Act]:
        """Return what is to be done, in order of time."""
        news = news_of(self.departures, self._timetable)
        kill_at_ms = self._timetable.start_ms + int(DAY_S * 1000 * KILL_AFTER)
        acts = [(each.at_ms, partial(self._announce, each)) for each in news]
        return sorted([*acts, (kill_at_ms, self._kill)], key=lambda act: act[0])

    def _announce(self, news: News) -> None:
        route, flight = news.departure.route, news.departure.id
        if news.due_ms is None:
            answer = self.producer.cancel(route, flight)
            self._ledger.note_cancel(route, flight, answer)
            self._board.tell(f"cancel {flight}: {answer}")
        else:
            answer = self.producer.reschedule(route, flight, at=news.due_ms)
            self._ledger.note_reschedule(route, flight, answer, news.due_ms)
            late = f"{news.departure.delay_min} minutes late"
            self._board.tell(f"reschedule {flight}, {late}: {answer}")

    def _kill(self) -> None:
        held = self.crew.kill_first(self.view.stores.values())
        story = f"worker 1 killed (SIGKILL), messages in its hands: {held}"
        self._board.announce(f"{story}; workers left: {self.crew.alive}", style="bold red")

    def _wait_at_rest(self) -> None:
        last_due_ms = self._ledger.last_due_ms
        wait_until(last_due_ms)
        give_up_at_ms = last_due_ms + int(REST_WITHIN_S * 1000)
        while not self.view.is_empty and now_ms() < give_up_at_ms:
            time.sleep(PAUSE_S)
        over = "the store is empty" if self.view.is_empty else "gave up: the store is not empty"
        moved = f"{self._ledger.rescheduled} envelopes were rescheduled on the way"
        self._board.announce(f"{over}; {moved}")

    def verdicts(self) -> dict[str, AuditVerdict]:
        """Return the audit's verdict on each route and on all, of what the brokers have to show."""
        seen = self.stage.read_all()
        judged = {route: [route] for route in ROUTES} | {ALL: [*ROUTES]}
        return {
            name: audit(self._ledger.history(routes, seen, self.view.held(routes)))
            for name, routes in judged.items()
        }

    def _counts(self) -> dict[str, Counts]:
        return {route: self._counts_of(route) for route in ROUTES}

    def _counts_of(self, route: str) -> Counts:
        poll = self.view.stores[route].next()
        arrived, letters = (self.stage.count(route, is_dead=each) for each in (False, True))
        waiting = poll.pending, poll.ready + poll.suspect, poll.unack, poll.retry
        return Counts(*waiting, arrived, letters + poll.dead)


def now_ms() -> int:
    """Return the time in epoch ms."""
    return int(time.time() * 1000)


def wait_until(at_ms: int) -> None:
    """Return at an instant, or at once where it has passed."""
    time.sleep(max(0, at_ms - now_ms()) / 1000)
