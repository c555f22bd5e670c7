"""The loop of one intake: take a batch in, store it, and only then let its broker forget it.

    receive ─▶ read ─▶ store, in order ─▶ dead letters, confirmed ─▶ settle
                                               └─ rejected: kept in the store

While the store or the dead-letter target is away the batch in hand waits, and nothing more is
taken in; the broker keeps the rest.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event

from duebridge.config.models import Config
from duebridge.errors import ConfigError, StoreError
from duebridge.intake.kept import kept
from duebridge.intake.letters import LetterBox, LettersHeld
from duebridge.intake.positions import WantedPositions
from duebridge.intake.requests import Cancel, Refusal, Rules, read_arrival
from duebridge.intake.storing import Run, Storeroom, steps_of
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival, Source
from duebridge.store.wire.transitions import Kept
from duebridge.store.workers import IntakeRecord
from duebridge.telemetry import metrics
from duebridge.worker.lanes.outage import Outage

RECEIVE_S = 0.5
FIRST_PAUSE_S = 0.02
MOST_PAUSE_S = 1.0
MOST_ERROR = 500  # characters
LAG_EVERY_S = 1.0
KEEP_ALIVE_S = 5.0  # below any heartbeat: a batch may take many calls of a slow store


class BatchInHand:
    """Messages that are not settled yet, and what is left to do for them."""

    def __init__(self, arrivals: Sequence[Arrival], rules: Rules, began: float) -> None:
        requests = [read_arrival(rules, arrival) for arrival in arrivals]
        self.arrivals = arrivals
        self.began = began
        self.steps: deque[Run | Cancel] = deque(steps_of(requests))
        self.is_repeated = False
        # Those with a place come back from the step that keeps it.
        refused = (each for each in requests if isinstance(each, Refusal))
        self.letters = [each for each in refused if each.arrival.place is None]
        self.kept: list[Kept] = []  # those that the dead-letter target rejects for good


class IntakeLoop:
    """One intake. `run_once` is called by one thread; what is public else, by any."""

    def __init__(
        self,
        name: str,
        config: Config,
        source: Source,
        storeroom: Storeroom,
        letters: LetterBox,
        positions: WantedPositions,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.source = source
        self._lag: int | None = None
        self._lag_at = -math.inf
        self.error = "not connected yet"
        self._config = self._wanted = config
        self._rules = Rules.of(config, config.intakes[name])
        self._storeroom = storeroom
        self._letters = letters
        self._positions = positions
        self._monotonic = monotonic
        self._stepped_at = self._kept_at = monotonic()
        self._batch: BatchInHand | None = None
        self._over = Event()
        self._pause_s = FIRST_PAUSE_S
        outage = partial(Outage, monotonic=monotonic, intake=name)
        self._source_outage = outage("intake_source_unavailable", "intake_source_back")
        self._store_outage = outage("intake_store_unavailable", "intake_store_back")
        self._letters_outage = outage("intake_letters_held", "intake_letters_sent")
        self._fault = outage("intake_failed", "intake_works")

    # ── the flow ────────────────────────────────────────────────────────────────────────────────

    def run_once(self) -> int:
        """Take a batch in, or go on with the one in hand; return how many messages it settled."""
        self._stepped_at = self._monotonic()
        self._note_lag()
        if self._batch is None:
            self._follow_config()
            arrivals = self._receive()
            if not arrivals:
                return 0
            self._batch = BatchInHand(arrivals, self._rules, self._monotonic())
            self._kept_at = self._batch.began
        return self._go_on(self._batch)

    def _receive(self) -> Sequence[Arrival]:
        try:
            arrivals = self.source.receive(RECEIVE_S)
        except (BrokerUnavailable, ConfigError) as error:
            self._lose_source(error)
            return ()
        self._source_outage.end()
        self.error = ""
        metrics.intake_received.labels(self.name).inc(len(arrivals))
        metrics.intake_without_id.labels(self.name).inc(sum(not each.id for each in arrivals))
        return arrivals

    def _go_on(self, batch: BatchInHand) -> int:
        try:
            self._store(batch)
            self._send_letters(batch)
            self._positions.note(batch.arrivals)
            self.source.settle(batch.arrivals)
        except StoreError as error:
            batch.is_repeated = True
            self._store_outage.begin(str(error))
        except LettersHeld as error:
            self._letters_outage.begin(str(error))
        except BrokerUnavailable as error:
            self._batch = None  # they come again, and are told apart by then
            self._lose_source(error)
            return 0
        else:
            self._batch, self._pause_s = None, FIRST_PAUSE_S
            self._store_outage.end()
            return len(batch.arrivals)
        self._hold()
        return 0

    def _store(self, batch: BatchInHand) -> None:
        while batch.steps:
            step, is_repeated = batch.steps[0], batch.is_repeated
            batch.letters += self._storeroom.carry_out(step, is_repeated=is_repeated)
            batch.steps.popleft()
            batch.is_repeated = False
            self._keep_alive()
            self._stepped_at = self._monotonic()

    def _send_letters(self, batch: BatchInHand) -> None:
        unsent = self._letters.send(batch.letters)
        left = [] if unsent.held is None else unsent.held.left
        self._count_sent(batch.letters, left)
        batch.letters = left
        batch.kept += [each for refusal in unsent.rejected for each in kept(refusal)]
        self._storeroom.keep(batch.kept)
        batch.kept = []
        if unsent.held is not None:
            raise unsent.held
        self._letters_outage.end()

    def _count_sent(self, letters: Sequence[Refusal], left: Sequence[Refusal]) -> None:
        held = set(map(id, left))
        for refusal in letters:
            if id(refusal) not in held:
                metrics.intake_refused.labels(self.name, refusal.reason.word).inc()

    def _hold(self) -> None:
        """Wait a moment with the batch in hand; its broker goes on counting on this consumer."""
        self._keep_alive(0.0)
        self._pause()

    def _keep_alive(self, every_s: float = KEEP_ALIVE_S) -> None:
        """Keep the connection, unless that was done a moment ago."""
        if self._monotonic() - self._kept_at < every_s:
            return
        self._kept_at = self._monotonic()
        try:
            self.source.keep_alive()
        except Exception as error:  # a settle that fails says whether the batch is lost
            self._source_outage.begin(f"{type(error).__name__}: {error}")

    def _note_lag(self) -> None:
        """Ask for the lag here: a client that another thread asks may wait for this one's call."""
        now = self._monotonic()
        if now - self._lag_at >= LAG_EVERY_S:
            self._lag, self._lag_at = self.source.lag(), now

    def _lose_source(self, error: Exception) -> None:
        self.error = str(error)
        self._source_outage.begin(self.error)
        self._pause()

    def _pause(self) -> None:
        self._over.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)

    def _follow_config(self) -> None:
        config = self._wanted
        if config is not self._config:
            self._config = config
            self._rules = Rules.of(config, config.intakes[self.name])
            self._storeroom.use(config)

    # ── for the process ─────────────────────────────────────────────────────────────────────────

    def run(self, stop: Event) -> None:
        """Run until `stop`, and then until no batch is in hand, or `give_up`."""
        while not stop.is_set() or (self._batch is not None and not self._over.is_set()):
            try:
                self.run_once()
                self._fault.end()
            except Exception as error:
                self._fault.begin(f"{type(error).__name__}: {error}")
                self._hold()

    def swap(self, config: Config) -> None:
        """Read the next batch by the routes of another configuration."""
        self._wanted = config

    def give_up(self) -> None:
        """End a wait with a batch in hand: it stays the broker's."""
        self._over.set()

    def waiting_s(self) -> float:
        """Return how long the batch in hand has waited, 0 without one."""
        batch = self._batch
        return 0.0 if batch is None else self._monotonic() - batch.began

    def idle_s(self) -> float:
        """Return the seconds since the loop made a step."""
        return self._monotonic() - self._stepped_at

    def known_lag(self) -> int | None:
        """Return how many messages wait at the broker, at most some seconds ago."""
        return self._lag

    def is_up(self) -> bool:
        """Return whether the source answered last time it was asked."""
        return not self.error

    def record(self) -> IntakeRecord:
        """Return how the intake is now."""
        held = (each.error for each in (self._store_outage, self._letters_outage, self._fault))
        return IntakeRecord(
            name=self.name,
            is_up=self.is_up(),
            error=(self.error or next(filter(None, held), ""))[:MOST_ERROR],
            lag=self._lag,
            waiting_ms=round(1000 * self.waiting_s()),
        )
