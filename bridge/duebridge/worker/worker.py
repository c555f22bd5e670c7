"""Moves envelopes from due to delivered, in a loop for each node of the store.

A node that is slow, or away, holds up the loop of its own shards alone (`duebridge.worker.loop`).
The loops share lanes; a shard whose slot moves goes to the loop of its new node.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from queue import Empty

from duebridge.runtime import left_s
from duebridge.store.keys import Shard
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.deliverer import Deliverer
from duebridge.worker.dispatcher import Dispatcher
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.loop import Loop, LoopContext
from duebridge.worker.shard import ShardView

NODES_EVERY_S = 1.0  # whether shards are at other nodes


class Worker:
    """The loops of a worker process, and what they share."""

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        views: Sequence[ShardView],
        monotonic: Callable[[], float] = time.monotonic,
        tracing: Tracing | None = None,
        node_of: Callable[[Shard], str] = lambda _: "",
    ) -> None:
        """Serve `views`; `node_of` names the node that has a shard: empty on one server."""
        self.lanes = dict(lanes)
        self.views = list(views)
        self._node_of = node_of
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._deliverer = Deliverer(monotonic, tracing)
        self._dispatcher = Dispatcher(self._deliverer, self, monotonic)
        self._shared = LoopContext(
            self.lanes,
            self._dispatcher,
            self._deliverer.acks,
            lambda: self.views,
            self._begin_turn,
            lambda loop, view: self._loop_of(view) is loop,
            self._stopping,
            monotonic,
        )
        self._is_running = False
        self._regrouping = threading.Lock()
        self._regroup_at = monotonic() + NODES_EVERY_S
        self._nodes: dict[ShardView, str] = {}
        self._by_shard: dict[Shard, ShardView] = {}
        self._loops: dict[str, Loop] = {}
        self._retired: list[Loop] = []
        self._regroup()

    # ── which loop has which shard ──────────────────────────────────────────────────────────────

    def _begin_turn(self) -> None:
        """Pass on which targets are well again; once a second regroup, end idle holds."""
        self._pass_on_recovered()
        if self._monotonic() >= self._regroup_at and self._regrouping.acquire(blocking=False):
            try:
                self._regroup_at = self._monotonic() + NODES_EVERY_S
                self._regroup()
                self._end_idle_holds()
            finally:
                self._regrouping.release()

    def _end_idle_holds(self) -> None:
        for lane in self.lanes.values():
            if lane.targets.held():
                awaiting = {to for view in self.views for to in view.awaiting}
                lane.end_idle_holds(self._shards_of(lane), awaiting)

    def _shards_of(self, lane: Lane) -> set[Shard]:
        """Return the shards that deliver through a lane; a reload may move a route to another."""
        return {view.shard for view in self.views if view.target.broker == lane.broker}

    def _regroup(self) -> None:
        """Give each shard to the loop of its node; one whose node is unknown stays where it is."""
        nodes = {view: self._node_of(view.shard) or view.node for view in self.views}
        if nodes == self._nodes and self._loops:
            return
        before = self._loops
        wanted = set(nodes.values()) or set(list(before)[:1]) or {""}
        loops = {node: before.get(node) or self._new_loop(node) for node in sorted(wanted)}
        self._loops = {**before, **loops}  # a shard's node has a loop at every moment
        for view, node in nodes.items():
            view.node = node
        for node, loop in loops.items():
            loop.views = [view for view in self.views if nodes[view] == node]
        for lane in self.lanes.values():
            lane.claimants = len(loops)
        self._by_shard = {view.shard: view for view in self.views}
        self._loops, self._nodes = loops, nodes
        for node in before.keys() - wanted:
            self._retire(before[node])
        self.wake()

    def _new_loop(self, node: str) -> Loop:
        loop = Loop(node, self._shared)
        if self._is_running:
            loop.start()
        return loop

    def _retire(self, loop: Loop) -> None:
        loop.retire()
        self._deliverer.forget_node(loop.node)
        self._retired = [each for each in (*self._retired, loop) if each.is_alive]

    def _loop_of(self, view: ShardView) -> Loop:
        """Return the loop that has a shard; of a shard that is no more served, any."""
        loops = self._loops
        return loops.get(view.node) or next(iter(loops.values()))

    def _pass_on_recovered(self) -> None:
        for lane in self.lanes.values():
            with suppress(Empty):
                while not lane.recovered.empty():
                    tag, shard = lane.recovered.get_nowait()
                    if view := self._by_shard.get(shard):
                        self.resume(view, tag)

    def resume(self, view: ShardView, tag: str) -> None:
        """Resume what a shard has set aside for a target. Thread-safe."""
        view.note_recovered(tag)
        self._loop_of(view).wake()

    # ── what batches tell the loops ─────────────────────────────────────────────────────────────

    def has_room(self) -> None:
        """Start a turn of each loop that waits for room. Thread-safe."""
        self._pass_on_recovered()
        for loop in self._loops.values():
            if loop.claims.is_waiting:
                loop.wake()

    def ended(self, view: ShardView) -> None:
        """Start a turn of the loop that has a shard, as a batch of it is settled. Thread-safe."""
        self._loop_of(view).wake()

    def settlers(self, view: ShardView) -> Executor | None:
        """Return the threads that settle for a shard's node, None for the lane's own."""
        return self._loop_of(view).settlers

    # ── the loops ───────────────────────────────────────────────────────────────────────────────

    def run_once(self) -> int:
        """Give every shard one turn, loop by loop; return the number of envelopes moved."""
        return sum(loop.run_once() for loop in list(self._loops.values()))

    def start(self) -> None:
        """Run every loop in a thread of its own."""
        with self._regrouping:
            self._is_running = True
            for loop in self._loops.values():
                loop.start()

    @property
    def is_alive(self) -> bool:
        """Whether all loops run, as they must until the stop."""
        return all(loop.is_alive for loop in self._loops.values())

    def stop(self, seconds: float) -> None:
        """End the loops after their turns; wait for that up to `seconds`."""
        until = time.monotonic() + seconds
        self._stopping.set()
        self.wake()
        for loop in (*self._loops.values(), *self._retired):
            loop.join(left_s(until))

    def sleep_s(self) -> float:
        """Return seconds until the next known work of any loop; at most a second."""
        return min(loop.sleep_s() for loop in self._loops.values())

    def wake(self, view: ShardView | None = None) -> None:
        """Start the next turn now; given a shard, its loop's, and poll it first. Thread-safe."""
        if view is not None:
            view.note_poll(None)
            self._loop_of(view).wake()
            return
        for loop in self._loops.values():
            loop.wake()

    def swap(self, views: Sequence[ShardView]) -> None:
        """Replace the served shards from the next turns on. Thread-safe.

        Batches in flight are settled with the route settings that they were claimed with.
        """
        with self._regrouping:
            self.views = list(views)
            self._regroup()
        self.wake()

    def idle_s(self) -> float:
        """Return seconds since the last step of the loop that has been still for longest."""
        return max(loop.idle_s() for loop in self._loops.values())

    def drain(self, seconds: float) -> None:
        """Release batches not yet published; wait up to `seconds` for the others to settle."""
        self._dispatcher.drain(seconds, lambda view: self.lanes[view.target.broker])

    def end_threads(self) -> None:
        """End the threads of lanes and loops once they have nothing left to do; does not wait."""
        for lane in self.lanes.values():
            lane.end_threads()
        for loop in self._loops.values():
            loop.end_threads()
