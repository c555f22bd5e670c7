"""Keeps a Cluster client's map of slots current, in a thread of its own, and knows silent nodes."""

import random
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster

from duebridge.store.server.errors import NodeUnresponsive
from duebridge.store.server.redis_client import RedisClient

PROBE_TIMEOUT_S = 0.5
LEAST_PAUSE_S = 0.2  # between two looks at the map, however many calls fail

SLOTS = 16384

_random = random.Random()  # noqa: S311 - jitter; the shared one is the application's
_ANSWERED = (redis.exceptions.ResponseError, redis.exceptions.AuthenticationError)


class MapKeeper:
    """Renews the map of slots, and asks silent nodes whether they answer, in a thread of its own.

    The thread lives as long as there is something to do.
    """

    def __init__(
        self, client: RedisCluster, seeds: Sequence[tuple[str, int]], options: Mapping[str, Any]
    ) -> None:
        self._client = weakref.ref(client)
        self._seeds, self._options = seeds, options
        self._silent: dict[str, ClusterNode] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_doubted = False
        self._is_closed = False

    def after_fork(self) -> None:
        """Make a new lock for a forked child, which has no thread, and a map of its parent's."""
        self._lock, self._thread, self._is_doubted = threading.Lock(), None, True

    def check(self, name: str) -> None:
        """Raise `NodeUnresponsive` for a node that fell silent and has not answered since."""
        if name in self._silent:
            self._keep()  # a start may have failed, and nobody else would ask the node
            raise NodeUnresponsive(f"node {name}")

    def failed(self, node: ClusterNode, is_silent: bool) -> None:
        """Note that a node did not answer."""
        if is_silent:
            self._silent[node.name] = node
        self.renew_map()

    def renew_map(self) -> None:
        """Renew the map soon."""
        self._is_doubted = True
        self._keep()

    def _keep(self) -> None:
        """Start the thread unless it runs; where it cannot start, the next call tries again."""
        with self._lock, suppress(Exception):
            if (self._thread is None or not self._thread.is_alive()) and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="cluster-map", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread soon."""
        self._is_closed = True

    def _run(self) -> None:
        while self._has_work():
            try:
                self._renew()
            except Exception:  # the client raises any class on bytes that are no reply
                self._is_doubted = True
            time.sleep(_random.uniform(LEAST_PAUSE_S / 2, LEAST_PAUSE_S))
            for node in list(self._silent.values()):
                if answers(node, self._options):
                    self._silent.pop(node.name, None)

    def _has_work(self) -> bool:
        with self._lock:
            is_needed = self._is_doubted or bool(self._silent)
            if self._is_closed or not is_needed or self._client() is None:
                self._thread = None
                return False
            return True

    def _renew(self) -> None:
        client: Any = self._client()
        if client is None:
            return
        self._is_doubted = False
        live = best_informed(self._candidates(client), self._options)
        if live is None or self._is_closed:  # the next call that fails has it renewed again
            return
        before = {node.name: node for node in client.get_nodes()}
        manager = client.nodes_manager
        manager.startup_nodes = {live.name: live}
        manager.initialize(disconnect_startup_nodes_pools=False)
        known = {node.name for node in client.get_nodes()}
        for name in self._silent.copy().keys() - known:  # of an earlier map, too
            self._silent.pop(name, None)
        for name in before.keys() - known:
            if gone := before[name].redis_connection:
                gone.close()

    def _candidates(self, client: Any) -> Iterator[ClusterNode]:
        """Yield whom to ask for the map: any node, silent ones last, then the seeds as given."""
        nodes = list(client.get_nodes())
        _random.shuffle(nodes)
        yield from sorted(nodes, key=lambda node: node.name in self._silent)
        yield from (node_at(host, port) for host, port in self._seeds)


def node_at(host: str, port: int) -> ClusterNode:
    """Return a node by its address alone, as redis-py has it."""
    return ClusterNode(host, port)  # type: ignore[no-untyped-call]


def best_informed(nodes: Iterable[ClusterNode], options: Mapping[str, Any]) -> ClusterNode | None:
    """Return the first node that knows an owner of every slot, else the one that knows the most.

    None where no node knows any: one that was removed from the Cluster, or has yet to join it,
    answers and knows none.
    """
    best, most = None, 0
    for node in nodes:
        if (known := _count_known(node, options)) > most:
            best, most = node, known
        if known == SLOTS:
            break
    return best


def _count_known(node: ClusterNode, options: Mapping[str, Any]) -> int:
    """Return how many slots have an owner by a node's word; 0 where it is silent or refuses."""
    with suppress(Exception), closing(_probe(node, options)) as client:
        found = client.execute_command("CLUSTER SLOTS")
        return sum(int(last) - int(first) + 1 for first, last, *_ in found)
    return 0


def first_answering(nodes: Iterable[ClusterNode], options: Mapping[str, Any]) -> ClusterNode | None:
    """Return the first node that answers within half a second, whatever it answers."""
    return next((node for node in nodes if answers(node, options)), None)


def answers(node: ClusterNode, options: Mapping[str, Any]) -> bool:
    """Whether a node answers within half a second, whatever it answers."""
    client = _probe(node, options)
    try:
        client.ping()
    except _ANSWERED:
        return True
    except Exception:  # the client raises any class on bytes that are no reply
        return False
    finally:
        client.close()
    return True


def _probe(node: ClusterNode, options: Mapping[str, Any]) -> RedisClient:
    timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), PROBE_TIMEOUT_S)
    return RedisClient(host=node.host, port=node.port, **{**options, **timeouts})
