"""The connection to the delay store: runs scripts where their keys are, and repeats them.

The client itself never repeats a call: a script whose reply was lost may have run, and only
`DelayStore` knows which scripts may run twice.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from duebridge.config.durability import ReplicaWait
from duebridge.errors import ConfigError, Indeterminate, StoreError, StoreUnavailable, StoreUnfit
from duebridge.store.caller import check_awaited, is_abandoned
from duebridge.store.server.durability import run_replicated
from duebridge.store.server.errors import SlotMigrating, WritesRefused, translated_errors
from duebridge.store.server.opening import Client, open_client
from duebridge.store.server.reconnects import CallSuppressed, Reconnects
from duebridge.store.server.scripts import Script, names, run_script, script, sharded
from duebridge.store.server.sets.cluster import ClusterClient, ask_primaries, node_name, server_of

P = ParamSpec("P")
T = TypeVar("T")
Argument: TypeAlias = bytes | str | int

SOCKET_TIMEOUT_S = 5.0
REPEAT_FOR_S = 10.0  # the usual patience of a call while the store is away
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


class Reply(NamedTuple):
    """The answer of a script, and whether the call was repeated."""

    value: Any
    repeated: bool


class Connection:
    """Runs scripts on one server, on a Sentinel set's master or on a Cluster; shared by threads.

    `observe` gets the script and the seconds of every call, answered or not. `actor` is the person
    in whose name calls are journalled, empty for a program.
    """

    actor = ""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.observe: Callable[[str, float], None] = lambda _, __: None
        self._reconnects: dict[str, Reconnects] = {}  # by node: one that fails holds up no other

    def load_scripts(self, repeat_for_s: float = 0.0) -> None:
        """Load the scripts of shards into the server, so that no later call of them sends one.

        A node of a Cluster that is away is left out: later calls send what it lacks.
        """
        client: Any = self.client

        def load(at: Mapping[str, Any]) -> None:
            for name in names():
                client.execute_command("SCRIPT LOAD", self.form_of(script(name)).source, **at)

        self.repeat_while_away(lambda: ask_primaries(client, load), repeat_for_s)

    def run(
        self,
        called: Script,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        repeat_for_s: float = 0.0,
        wanted: ReplicaWait | None = None,
    ) -> Reply:
        """Run a script; while the store is away, repeat the call for `repeat_for_s`.

        A call that nobody waits for (`store.caller`) is neither sent nor repeated.
        Raises `StoreUnavailable` (the script may have run), `StoreFull`, `StoreUnfit` and
        `StoreError`; `Indeterminate` where fewer replicas than `wanted` confirmed to the end.
        """
        key, sent = keys[0] if keys else "", self.form_of(called)
        call = partial(self._ask, key, self._run_timed, sent, keys, arguments, wanted)
        return _repeat(call, repeat_for_s)

    def repeat_while_away(
        self, call: Callable[[], Any], repeat_for_s: float, key: str = ""
    ) -> Reply:
        """Return the answer of a call; repeat it for `repeat_for_s` while the store is away.

        On a Cluster a call about a key waits for that key's node alone. Raises as the call does.
        """
        return _repeat(partial(self._ask, key, call), repeat_for_s)

    def _ask(self, key: str, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Call the node that has a key, unless it failed a moment ago; note how it answers."""
        reconnects = self._reconnects.setdefault(self.node_of(key), Reconnects())
        reconnects.check()
        try:
            answer = call(*given, **named)
        except StoreError as error:
            is_answer = isinstance(error, Indeterminate | SlotMigrating | WritesRefused)
            if isinstance(error, StoreUnavailable) and not is_answer:
                reconnects.failed()
            elif not isinstance(error, StoreUnfit):  # a refusal is an answer; a log-in's is none
                reconnects.answered()
            raise
        reconnects.answered()
        return answer

    @property
    def is_cluster(self) -> bool:
        """Whether the store is a Cluster."""
        return isinstance(self.client, ClusterClient)

    def node_of(self, key: str) -> str:
        """Return the Cluster's node, by name, of a key; empty for none, or on one server."""
        return node_name(self.client, key)

    def is_away(self, key: str) -> bool:
        """Whether the node that has a key did not answer the latest call."""
        reconnects = self._reconnects.get(self.node_of(key))
        return reconnects is not None and reconnects.is_failing

    def server_of(self, key: str) -> Any:
        """Return redis-py's client of the one server that has a key, now; raises its errors."""
        return server_of(self.client, key)

    def renew_map(self) -> None:
        """Renew a Cluster's map of slots soon."""
        if isinstance(self.client, ClusterClient):
            self.client.renew_map()

    def form_of(self, called: Script) -> Script:
        """Return a script as this store needs it: on a Cluster hints stay with their slot."""
        return sharded(called) if self.is_cluster else called

    def _run_timed(self, called: Script, *given: Any) -> Any:
        started_at = time.perf_counter()
        try:
            return self._run_once(called, *given)
        finally:
            self.observe(called.name, time.perf_counter() - started_at)

    def _run_once(
        self,
        called: Script,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        wanted: ReplicaWait | None = None,
    ) -> Any:
        with translated_errors():
            try:
                return self._execute(called, (len(keys), *keys, *arguments), wanted)
            except UnicodeEncodeError:  # before anything was sent
                return self._execute(called, (len(keys), *keys, *_encoded(arguments)), wanted)

    def _execute(
        self, called: Script, rest: tuple[Argument, ...], wanted: ReplicaWait | None
    ) -> Any:
        if wanted is not None:
            return run_replicated(self.client, called, rest, wanted)
        return run_script(
            called, rest, self.client.execute_command, lambda: self._load(called, rest)
        )

    def _load(self, called: Script, rest: tuple[Argument, ...]) -> None:
        """Load a script where its keys are, since other nodes need not answer."""
        if isinstance(self.client, ClusterClient):
            self.client.load_at(str(rest[1]), called.source)
        else:
            self.client.script_load(called.source)

    def close(self) -> None:
        """Close every socket."""
        self.client.close()


def _repeat(call: Callable[[], Any], repeat_for_s: float) -> Reply:
    check_awaited()  # a thread, a lock or the route's opening may have held it up
    give_up_at = time.monotonic() + repeat_for_s
    pause_s, repeated = FIRST_PAUSE_S, False
    while True:
        try:
            return Reply(call(), repeated)
        except StoreUnavailable as error:
            wait_s = random.uniform(pause_s / 2, pause_s)  # noqa: S311 - jitter
            if time.monotonic() + wait_s >= give_up_at:
                raise
            time.sleep(wait_s)
            if is_abandoned():  # sent again it could undo what its caller did meanwhile
                raise
            repeated |= not isinstance(error, CallSuppressed)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _encoded(arguments: Sequence[Argument]) -> list[Argument]:
    """Return arguments of which one is a damaged id, which goes back as it came."""
    return [
        argument.encode(errors="surrogateescape") if isinstance(argument, str) else argument
        for argument in arguments
    ]


def open_connection(
    url: str,
    socket_timeout_s: float = SOCKET_TIMEOUT_S,
    repeat_for_s: float = 0.0,
    read_url: Callable[[], str] | None = None,
) -> Connection:
    """Return a connection to the store that `url` names; connects at the first call.

    To a Cluster it connects at once, for which `repeat_for_s` is the patience. `read_url` returns
    the URL as it is now: its user and password are read at each connect. `embedded:DIR` is a server
    of our own (`store.server.embedded`); the others are `store.server.opening`'s. Raises
    `ConfigError` for any other.
    """
    if url.startswith("embedded:"):
        from duebridge.store.server.embedded import start_embedded
        from duebridge.store.server.revival import Reviver, RevivingConnection

        directory = url.removeprefix("embedded:")
        if not directory:
            raise ConfigError("store.url: expected embedded:DIR; got no directory")
        own = {"connection_class": RevivingConnection, "reviver": Reviver(directory)}
        return Connection(open_client(start_embedded(directory), socket_timeout_s, None, own))
    opening = partial(open_client, url, socket_timeout_s, read_url)
    opened: Client = _repeat(opening, repeat_for_s).value
    return Connection(opened)


@contextmanager
def opened_connection(
    url: str, repeat_for_s: float = 0.0, read_url: Callable[[], str] | None = None
) -> Iterator[Connection]:
    """Give a connection; raises as `open_connection`, and nothing that would quote the url."""
    try:
        connection = open_connection(url, repeat_for_s=repeat_for_s, read_url=read_url)
    except ValueError:  # what is wrong with a URL may be said by quoting its password
        raise ConfigError("store.url: expected a URL that can be read; got another") from None
    except OSError as error:
        raise StoreUnavailable(f"store: {error.strerror}: {error.filename}") from error
    try:
        yield connection
    finally:
        connection.close()
