"""The client of a Cluster: a call goes to the node of its slot, once, and waits for no other node.

redis-py's own client asks for the map of slots in the thread of the call that failed, repeats a
call up to twenty times in a moment, and waits for a frozen node again and again. Here a call that
failed is reported, a thread renews the map and asks silent nodes, and the caller's patience
decides.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException

from duebridge.errors import StoreUnavailable
from duebridge.store.server.errors import translated_errors
from duebridge.store.server.forks import renew_after_fork, renew_locks, renew_pool_locks
from duebridge.store.server.redis_client import ExitSafeClient, RedisClient, SafePool
from duebridge.store.server.sets.slot_map import MapKeeper, best_informed, first_answering, node_at

T = TypeVar("T")

_DEAD = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)


class ClusterClient(ExitSafeClient, RedisCluster):
    """Sends each command once to the node that it belongs to, and follows MOVED and ASK once.

    An unresponsive node gets no calls (`NodeUnresponsive`) until it answers a probe, so that it
    delays one call of a thread, and none to another node.
    """

    def __init__(self, seeds: Sequence[tuple[str, int]], options: Mapping[str, Any]) -> None:
        """Read the map of slots from the first seed that knows them all, or from the best informed.

        Raises `RedisClusterException` where none answers, or none knows any.
        """
        self._is_mapped = False
        self._map_keeper = MapKeeper(self, seeds, options)
        nodes = [node_at(host, port) for host, port in seeds]
        live = best_informed(nodes, options) or first_answering(nodes, options)
        self._seed, self._options = live or nodes[0], options
        seeds_to_ask = [live] if live else nodes
        try:
            super().__init__(startup_nodes=seeds_to_ask, require_full_coverage=False, **options)
        except IndexError:  # of a map without a node
            raise RedisClusterException("no node of the Cluster knows an owner of slots") from None
        self._is_mapped = True
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Make new locks for a forked child."""
        client: Any = self
        manager = client.nodes_manager
        renew_locks(manager, manager.read_load_balancer, manager._event_dispatcher)
        client._lock = manager._lock  # one lock, as redis-py has it
        for node in client.get_nodes():
            if node.redis_connection:
                renew_pool_locks(node.redis_connection.connection_pool)
        self._map_keeper.after_fork()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command to the node of its key; raises redis-py's errors."""
        with self._renewing_map():
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def get_node_from_key(self, key: str, replica: bool = False) -> Any:
        """Return the node that has a key; raises `SlotNotCoveredError` where the map has none."""
        with self._renewing_map():
            return super().get_node_from_key(key, replica)  # type: ignore[no-untyped-call]

    @contextmanager
    def _renewing_map(self) -> Iterator[None]:
        """Renew the map soon where it has no node for what is asked."""
        try:
            yield
        except RedisClusterException:
            self.renew_map()
            raise

    def get_redis_connection(self, node: ClusterNode) -> Any:
        """Return the client of a node: one that is safe to interrupt, in place of redis-py's."""
        client = super().get_redis_connection(node)
        if isinstance(client, RedisClient):
            return client
        with self._lock:
            if not isinstance(node.redis_connection, RedisClient):
                pool = SafePool.like(client.connection_pool, self._options)
                node.redis_connection = RedisClient.from_pool(pool)
            return node.redis_connection

    def load_at(self, key: str, source: str) -> None:
        """Load a script into the node that has a key; raises redis-py's errors."""
        client: Any = self
        client.execute_command("SCRIPT LOAD", source, target_nodes=client.get_node_from_key(key))

    def at_owner(self, key: str, call: Callable[[Any], T]) -> T:
        """Run a call on the client of the node that has a key, twice at most: MOVED is followed.

        Raises redis-py's errors, of them `AskError` while the key's slot is between two nodes.
        """
        client: Any = self
        node = client.get_node_from_key(key)
        try:
            return self._reported(node, call)
        except redis.exceptions.MovedError as moved:  # it did not run
            return self._reported(self._moved(node, moved), call)

    def renew_map(self) -> None:
        """Renew the map of slots soon."""
        self._map_keeper.renew_map()

    def _moved(self, node: ClusterNode, moved: redis.exceptions.MovedError) -> ClusterNode:
        """Return the node to which another one sent us."""
        moved.host = moved.host or node.host
        manager: Any = self.nodes_manager
        manager.move_slot(moved)
        to: ClusterNode = manager.get_node_from_slot(moved.slot_id)
        return to

    def _reported(self, node: ClusterNode, call: Callable[[Any], T]) -> T:
        self._map_keeper.check(node.name)
        client: Any = self.get_redis_connection(node)
        try:
            return call(client)
        except redis.exceptions.AuthenticationError:
            raise
        except _DEAD as error:
            self._map_keeper.failed(node, isinstance(error, redis.exceptions.TimeoutError))
            raise
        except (redis.exceptions.ClusterDownError, redis.exceptions.MovedError):
            self._map_keeper.renew_map()
            raise

    def _execute_command(self, target_node: ClusterNode, *args: Any, **kwargs: Any) -> Any:
        if self._is_mapped:
            return self._follow(target_node, args, kwargs)
        return self._ask_seed(args, kwargs)

    def _ask_seed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Ask the seed that answered: redis-py would ask any node of a map that may be old."""
        client: Any = RedisClient(host=self._seed.host, port=self._seed.port, **self._options)
        try:
            return client.execute_command(*args, **kwargs)
        finally:
            client.close()

    def _follow(self, node: ClusterNode, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        try:
            return self._ask(node, args, options)
        except redis.exceptions.MovedError as moved:
            return self._ask(self._moved(node, moved), args, options)
        except redis.exceptions.AskError as ask:
            name = f"{ask.host or node.host}:{ask.port}"
            cluster: Any = self
            to = cluster.get_node(node_name=name) or node_at(ask.host or node.host, ask.port)
            return self._ask(to, args, options, is_asking=True)

    def _ask(
        self,
        node: ClusterNode,
        args: Sequence[Any],
        options: Mapping[str, Any],
        *,
        is_asking: bool = False,
    ) -> Any:
        def call(client: Any) -> Any:
            if not is_asking:
                return client.execute_command(*args, **options)
            with client.pipeline(transaction=False) as pipe:
                pipe.execute_command("ASKING")
                pipe.execute_command(*args, **options)
                answers = pipe.execute(raise_on_error=False)  # else its words would hide theirs
            for each in answers:
                if isinstance(each, Exception):
                    raise each
            return answers[1]

        answer = self._reported(node, call)
        if is_asking:
            return answer
        callbacks: Any = self.cluster_response_callbacks
        callback = callbacks.get(args[0])
        return callback(answer, **options) if callback else answer

    def close(self) -> None:
        """Close every connection, and end the thread that renews the map."""
        self._map_keeper.close()
        super().close()


class Asked(NamedTuple):
    """The answers of the primaries, and the names of those of a Cluster that are away."""

    answers: list[Any]
    away: list[str]


def primaries(client: Any) -> list[dict[str, Any]]:
    """Return the options of a command that name each primary in turn."""
    if not isinstance(client, RedisCluster):
        return [{}]
    cluster: Any = client
    return [{"target_nodes": each} for each in cluster.get_primaries()]


def ask_primaries(client: Any, ask: Callable[[Mapping[str, Any]], Any]) -> Asked:
    """Ask each primary in turn; one that is away keeps no other from being asked.

    Raises `StoreError`, of them `StoreUnavailable` where none answers.
    """
    asked, error = Asked([], []), StoreUnavailable("no node of the Cluster is a primary")
    for at in primaries(client):
        try:
            with translated_errors():
                asked.answers.append(ask(at))
        except StoreUnavailable as found:
            error = found
            asked.away.append(at["target_nodes"].name if at else "")
    if not asked.answers:
        raise error
    return asked


def node_name(client: Any, key: str) -> str:
    """Return the name of the node that has a key; empty where there is one server, or none."""
    if not isinstance(client, RedisCluster) or not key:
        return ""
    cluster: Any = client
    with suppress(redis.exceptions.RedisError, RedisClusterException):
        return str(cluster.get_node_from_key(key).name)
    return ""


def server_of(client: Any, key: str) -> Any:
    """Return a client of the one server that has a key; raises redis-py's errors."""
    if isinstance(client, RedisCluster):
        cluster: Any = client
        return cluster.get_redis_connection(cluster.get_node_from_key(key))
    return client
