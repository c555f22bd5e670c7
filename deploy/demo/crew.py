"""The worker processes, one of them killed while it holds messages; and a look at their store."""

import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from duebridge.config.load import load_config, resolved_store_url
from duebridge.store.delay_store import DelayStore
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import open_connection

START_WITHIN_S = 30.0
KILL_WITHIN_S = 2.0
STOP_WITHIN_S = 20.0
FROZEN_S = 0.15  # longer than a living worker holds a message
GLANCE_S, PAUSE_S = 0.001, 0.05
STARTED = '"started"'
STATES = ("pending", "ready", "suspect", "unack", "retry", "dead")
PAGE = 1000


def duebridge(config: Path) -> list[str]:
    """Return the first words of a command on a configuration."""
    return [str(Path(sys.executable).with_name("duebridge")), "--config", str(config)]


class Crew:
    """Some `duebridge run` processes; none of them outlives `stop`."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        """Start so many and return once each says in its log that it works.

        Raises `RuntimeError` where one ended instead.
        """
        for _ in range(count):
            self._workers.append(self._start_one(len(self._workers)))
        give_up_at = time.monotonic() + START_WITHIN_S
        while not all(STARTED in self._log(number).read_text() for number in range(count)):
            if self.alive < count or time.monotonic() > give_up_at:
                raise RuntimeError(f"the workers did not start; their logs: {self.keep_logs()}")
            time.sleep(PAUSE_S)

    def _start_one(self, number: int) -> "subprocess.Popen[bytes]":
        with self._log(number).open("wb") as log:
            return subprocess.Popen(
                [*duebridge(self._config), "run"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours alone: we stop them in their turn
            )

    @property
    def alive(self) -> int:
        """How many of them run."""
        return sum(worker.poll() is None for worker in self._workers)

    def kill_first(self, stores: Collection[DelayStore]) -> int:
        """SIGKILL the first worker, if possible while it holds messages; returns how many.

        It is frozen first: what is still in unack after a moment is in its hands, not the others'.
        """
        victim = self._workers[0]
        give_up_at = time.monotonic() + KILL_WITHIN_S
        held: set[str] = set()
        while not held and time.monotonic() < give_up_at:
            if any(store.next().unack for store in stores):
                held = _held_frozen(victim, stores)
            time.sleep(GLANCE_S)
        victim.kill()
        victim.wait()
        return len(held)

    def stop(self) -> None:
        """End them all: a drain for those that can, SIGKILL for what is left."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(STOP_WITHIN_S)
            worker.kill()
            worker.wait()

    def keep_logs(self) -> Path:
        """Put the workers' whole logs into one file that outlives the demo, and return it."""
        descriptor, name = mkstemp(prefix="duebridge-demo-", suffix=".log")
        with open(descriptor, "w") as file:
            file.writelines(self._log(number).read_text() for number in range(len(self._workers)))
        return Path(name)

    def _log(self, number: int) -> Path:
        return self._config.with_name(f"worker-{number + 1}.log")


def _held_frozen(victim: "subprocess.Popen[bytes]", stores: Collection[DelayStore]) -> set[str]:
    """Freeze a worker and return what it holds; it runs on if that is nothing."""
    victim.send_signal(signal.SIGSTOP)
    before = _in_unack(stores)
    time.sleep(FROZEN_S)
    held = before & _in_unack(stores)
    if not held:
        victim.send_signal(signal.SIGCONT)
    return held


def _in_unack(stores: Collection[DelayStore]) -> set[str]:
    return {entry.id for store in stores for entry in store.list("unack").entries}


class StoreView:
    """Looks at every route of a configuration, all of one shard; changes nothing. Close it."""

    def __init__(self, path: Path) -> None:
        config = load_config(path)
        self._connection = open_connection(resolved_store_url(config))
        self.stores = {
            name: RouteStore.open(self._connection, config.store.namespace, route).shards[0]
            for name, route in config.routes.items()
        }

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def is_empty(self) -> bool:
        """Whether every envelope was delivered, cancelled, or sent on as a dead letter."""
        polls = [store.next() for store in self.stores.values()]
        return not any(getattr(poll, state) for poll in polls for state in STATES)

    def held(self, routes: Iterable[str]) -> dict[str, str]:
        """Return what is left of some routes, id to state."""
        return {
            entry.id: state
            for route in routes
            for state in STATES
            for entry in self.stores[route].list(state, limit=PAGE).entries
        }
