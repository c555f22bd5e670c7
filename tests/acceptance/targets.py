"""Workers turned by hand, and targets that answer as a test says."""

from typing import Any

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Outcome
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.shard import ShardView
from duebridge.worker.worker import Worker
from tests.support.floor import Floor, InlineExecutor


class Crew:
    """The workers on a floor, turned by hand."""

    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        self.workers = [floor.worker]

    def run(self, ms: int, step_ms: int = 250) -> None:
        """Let time pass by steps; every worker turns until it is idle."""
        for _ in range(ms // step_ms):
            self.floor.advance(step_ms)
            self.turn()

    def turn(self) -> None:
        for worker in self.workers:
            for view in worker.views:
                worker.wake(view)
            turns = 0
            while worker.run_once():
                turns += 1
                assert turns < 300, "a worker turns for ever"


class Targets(Crew):
    """A floor whose topics answer as `outcomes` says; keeps every try."""

    def __init__(self, floor: Floor) -> None:
        super().__init__(floor)
        self.outcomes: dict[str, Outcome] = {}
        self.tries: list[tuple[int, str, str]] = []
        floor.publisher.script(self._answer)

    def _answer(self, delivery: Delivery) -> Outcome | None:
        topic = str(delivery.target.topic)
        self.tries.append((self.floor.elapsed_ms, delivery.id, topic))
        return self.outcomes.get(topic)

    def schedule(self, *ids: str, topic: str = "", **how: Any) -> None:
        own = {"target": Target("memory", topic=topic)} if topic else {}
        for at in range(0, len(ids), 500):
            self.floor.schedule(*ids[at : at + 500], **{"delay": "1ms", **how, **own})

    def another_worker(self, *brokers: str) -> Worker:
        """Return a worker that knows nothing yet, on the same shards; brokers share a publisher."""
        floor = self.floor
        threads = InlineExecutor()
        lanes = {
            name: Lane(name, floor.publisher, floor.config.worker, threads, None, floor.monotonic)
            for name in ("memory", *brokers)
        }
        views = [
            ShardView(view.route, view.store, floor.monotonic) for view in floor.views.values()
        ]
        return Worker(lanes, views, floor.monotonic)

    def tried(self, topic: str) -> list[int]:
        """When a topic was tried."""
        return [at for at, _, to in self.tries if to == topic]

    def gone(self, topic: str) -> list[str]:
        return self.floor.arrived(topic)
