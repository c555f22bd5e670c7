"""The loop of one intake: take a batch in, store it, and only then let its broker forget it.

    receive ─▶ read ─▶ store, in order ─▶ dead letters, confirmed ─▶ settle
                                               └─ rejected: kept in the store

While a large batch is being stored, the one before is settled and the next one received and read,
if the source allows that.
While the store or the dead-letter target is away the batch in hand waits, and nothing more is
taken in; the broker keeps the rest.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from threading import Event

from duebridge.config.models import Config
from duebridge.errors import ConfigError, StoreError, described
from duebridge.intake.intake_store import IntakeStore
from duebridge.intake.kept import as_dead_envelopes
from duebridge.intake.letters import LetterBox, LettersHeld
from duebridge.intake.positions import WantedPositions
from duebridge.intake.requests import RefusedMessage, Rules
from duebridge.intake.unsettled_batch import UnsettledBatch
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival, Source
from duebridge.runtime import in_background
from duebridge.store.workers import MOST_ERROR, IntakeRecord
from duebridge.telemetry import metrics
from duebridge.telemetry.outage import Outage

RECEIVE_S = 0.5
LARGE = 100  # messages: after fewer there is probably no next batch yet
FIRST_PAUSE_S = 0.02
MOST_PAUSE_S = 1.0
LAG_EVERY_S = 1.0
KEEP_ALIVE_S = 5.0  # below any heartbeat: a slow store may need longer for a batch


class IntakeLoop:
    """One intake. `run_once` is called by one thread; what is public else, by any."""

    def __init__(
        self,
        name: str,
        config: Config,
        source: Source,
        store: IntakeStore,
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
        self._store = store
        self.letters = letters
        self._positions = positions
        self._monotonic = monotonic
        self._stepped_at = monotonic()
        self._batch: UnsettledBatch | None = None
        self._next: UnsettledBatch | None = None
        self._stored: UnsettledBatch | None = None
        self._over = Event()
        self._stopping = Event()
        self._pause_s = FIRST_PAUSE_S
        outage = partial(Outage, monotonic=monotonic, intake=name)
        self._source_outage = outage("intake_source_unavailable", "intake_source_back")
        self._store_outage = outage("intake_store_unavailable", "intake_store_back")
        self._letters_outage = outage("intake_letters_held", "intake_letters_sent")
        self._fault = outage("intake_failed", "intake_works")

    # ── the flow ────────────────────────────────────────────────────────────────────────────────

    def run_once(self) -> int:
        """Take a batch in, or go on with the one in hand; return how many messages are stored.

        They are settled, or will be while the next batch, which is in hand then, is being stored.
        """
        self._stepped_at = self._monotonic()
        self._note_lag()
        if self._batch is None:
            self._follow_config()
            self._batch = self._take_in(RECEIVE_S)
        return self._go_on(self._batch) if self._batch else 0

    def _take_in(self, wait_s: float) -> UnsettledBatch | None:
        try:
            arrivals = self._receive(wait_s)
            if not arrivals:
                return None
            return UnsettledBatch(arrivals, self._rules, self._store, self._monotonic())
        except Exception:
            self._give_back()
            raise

    def _receive(self, wait_s: float) -> Sequence[Arrival]:
        try:
            arrivals = self.source.receive(wait_s)
        except (BrokerUnavailable, ConfigError) as error:
            self._lose_source(error)
            return ()
        self._source_outage.end()
        self.error = ""
        metrics.intake_received.labels(self.name).inc(len(arrivals))
        metrics.intake_without_id.labels(self.name).inc(sum(not each.id for each in arrivals))
        return arrivals

    def _go_on(self, batch: UnsettledBatch) -> int:
        try:
            self._store_batch(batch)
            if batch is not self._batch:  # the source is lost: all come again
                return 0
            self._send_letters(batch)
            self._positions.note(filter(self.source.owns, batch.arrivals))
        except StoreError as error:
            self._store_outage.begin(str(error))
        except LettersHeld as error:
            self._letters_outage.begin(str(error))
        else:
            self._store_outage.end()
            return self._finish(batch)
        self._hold()
        return 0

    def _finish(self, batch: UnsettledBatch) -> int:
        has_next = self._next is not None and bool(self._next.calls)
        if has_next and not self._over.is_set():
            self._stored = batch  # settled while the next one is stored
        elif not self._settle(batch):
            return 0
        self._batch, self._next = self._next, None
        return len(batch.arrivals)

    def _settle(self, batch: UnsettledBatch) -> bool:
        try:
            self.source.settle(batch.arrivals)
        except (BrokerUnavailable, ConfigError) as error:
            self._let_go()  # they come again, and are told apart by then
            self._lose_source(error)
            return False
        except Exception:
            self._give_back()
            raise
        self._pause_s = FIRST_PAUSE_S
        return True

    def _settle_stored(self) -> bool:
        if self._stored is not None and not self._settle(self._stored):
            return False
        self._stored = None
        return True

    def _give_back(self) -> None:
        """Return to the broker all that is in hand: a later settle would pass what nobody holds."""
        self._let_go()
        self.source.give_back()

    def _let_go(self) -> None:
        self._batch = self._next = self._stored = None

    def _store_batch(self, batch: UnsettledBatch) -> None:
        if not batch.calls:  # its letters are held
            return
        storing = in_background(partial(self._carry_out, batch), f"intake-{self.name}-store")
        try:
            if self._settle_stored() and self._next is None and self._may_run_ahead(batch):
                self._next = self._take_in(0.0)
        finally:
            self._await(storing)
        self._store_outage.end()

    def _may_run_ahead(self, batch: UnsettledBatch) -> bool:
        is_large = len(batch.arrivals) >= LARGE
        is_steady = self._wanted is self._config and not self._stopping.is_set()
        return is_large and is_steady and self.source.runs_ahead

    def _await(self, storing: "Future[None]") -> None:
        while not wait((storing,), KEEP_ALIVE_S).done:
            self._keep_alive()
        storing.result()

    def _carry_out(self, batch: UnsettledBatch) -> None:
        while batch.calls:
            call, is_repeated = batch.calls[0], batch.is_repeated
            batch.is_repeated = True  # whatever fails from here on may have been carried out
            batch.letters += self._store.carry_out(call, is_repeated=is_repeated)
            batch.calls.popleft()
            batch.is_repeated = False
            self._stepped_at = self._monotonic()

    def _send_letters(self, batch: UnsettledBatch) -> None:
        # Who owns a partition by now has its letters too: their messages are judged there again.
        own = [each for each in batch.letters if self.source.owns(each.arrival)]
        batch.letters = self._positions.unsettled(own)
        unsent = self.letters.send(batch.letters)
        left = [] if unsent.held is None else unsent.held.left
        batch.kept += [each for refusal in unsent.rejected for each in as_dead_envelopes(refusal)]
        sent, batch.letters = batch.letters, left
        self._count_sent(sent, left)
        self._store.keep(batch.kept)
        batch.kept = []
        if unsent.held is not None:
            raise unsent.held
        self._letters_outage.end()

    def _count_sent(
        self, letters: Sequence[RefusedMessage], left: Sequence[RefusedMessage]
    ) -> None:
        held = set(map(id, left))
        for refusal in letters:
            if id(refusal) not in held:
                metrics.intake_refused.labels(self.name, refusal.reason.word).inc()

    def _hold(self) -> None:
        """Wait a moment with the batch in hand; its broker goes on counting on this consumer."""
        self._keep_alive()
        self._pause()

    def _keep_alive(self) -> None:
        try:
            self.source.keep_alive()
        except Exception as error:  # a settle that fails says whether the batch is lost
            self._source_outage.begin(described(error))

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
            self._store.use(config)

    # ── for the process ─────────────────────────────────────────────────────────────────────────

    def run(self, stop: Event) -> None:
        """Run until `stop`, and then until no batch is in hand, or `give_up`."""
        self._stopping = stop
        while not stop.is_set() or (self._batch is not None and not self._over.is_set()):
            try:
                self.run_once()
                self._fault.end()
            except Exception as error:
                self._fault.begin_fault(error)
                self._hold()

    def swap(self, config: Config) -> None:
        """Read the next batch by the routes of another configuration."""
        self._wanted = config

    def give_up(self) -> None:
        """End a wait with a batch in hand: it stays the broker's."""
        self._over.set()

    def waiting_s(self) -> float:
        """Return the age of the unsettled batch in seconds, 0 without one."""
        batch = self._batch
        return 0.0 if batch is None else self._monotonic() - batch.began

    def idle_s(self) -> float:
        """Return the seconds since the loop made a step."""
        return self._monotonic() - self._stepped_at

    def known_lag(self) -> int | None:
        """Return the number of messages that waited at the broker some seconds ago."""
        return self._lag

    def is_up(self) -> bool:
        """Return whether the source answered last time it was asked."""
        return not self.error

    def record(self) -> IntakeRecord:
        """Return the intake's present state."""
        held = (each.error for each in (self._store_outage, self._letters_outage, self._fault))
        return IntakeRecord(
            name=self.name,
            is_up=self.is_up(),
            error=(self.error or next(filter(None, held), ""))[:MOST_ERROR],
            lag=self._lag,
            waiting_ms=round(1000 * self.waiting_s()),
        )
