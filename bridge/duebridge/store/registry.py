"""The routes of a namespace in the store: layout, number of shards, and the epoch of their life.

A route's life begins when it is registered and ends when it is removed. Its shards carry it, and
refuse calls of another.
"""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from duebridge.config.durability import ReplicaWait
from duebridge.config.fields import checked_name
from duebridge.errors import StoreError, StoreUnavailable, StoreUnfit
from duebridge.store.keys import Shard, epochs_key, purged_key, routes_key
from duebridge.store.server.connection import Argument, Connection, Reply
from duebridge.store.server.errors import translated_errors
from duebridge.store.server.scripts import script
from duebridge.store.wire.record import LAYOUT, NEWEST_LAYOUT
from duebridge.store.wire.replies import EntryReply, OpenReply, read_reply, read_text

EPOCH_BYTES = 8
REMOVED = "-"  # the epoch of a route whose removal has begun
MOST_LOOKS = 8


class RegisteredRoute(NamedTuple):
    """A route as the store has it."""

    layout: int
    shards: int


class Life(NamedTuple):
    """One life of a route: from its registration to its removal."""

    epoch: str
    shards: int

    @property
    def text(self) -> str:
        """The text that every writing call names: lua/shared/life.lua."""
        return f"{self.epoch}:{self.shards}"


class Registry:
    """The routes of a namespace. A route's number of shards never changes: ids are spread by it."""

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        repeat_for_s: float = 0.0,
        *,
        removal_waits_for: ReplicaWait | None = None,
    ) -> None:
        """Read and open routes; `repeat_for_s` is the patience while the store is away."""
        self._connection = connection
        self._repeat_for_s = repeat_for_s
        self._removal_waits_for = removal_waits_for
        self._namespace = namespace

    @property
    def _client(self) -> Any:
        return self._connection.client

    @property
    def _keys(self) -> tuple[str, str]:
        namespace = checked_name("namespace", self._namespace)
        return routes_key(namespace), epochs_key(namespace)

    def open_route(self, name: str, shards: int) -> int:
        """Return the route's number of shards, registered now if this is its first use.

        Raises as `open_life`.
        """
        return self.open_life(name, shards).shards

    def open_life(self, name: str, shards: int | None, *, registers: bool = True) -> Life:
        """Return the route's life, which all its shards have from now on.

        A shard whose node of a Cluster is away has it from its first use on: until then it refuses
        every writing call, and `RouteLife` opens the route again. A later opening writes nothing,
        so that a worker can start on a full store, and empty it.
        With `registers` the route is registered if this is its first use.

        Raises `StoreUnfit` where the store has another number of shards, a layout that this version
        of duebridge does not know, or no such route; `StoreUnavailable` while the route changes.
        """
        value = f"{LAYOUT}:{shards}" if registers else ""
        for _ in range(MOST_LOOKS):
            life = self._entered(checked_name("route", name), value, shards)
            if self._is_open_in_all_shards(name, life):
                return life
        raise StoreUnavailable(f"route {name}: gave up after {MOST_LOOKS} changes of the route")

    def _is_open_in_all_shards(self, name: str, life: Life) -> bool:
        """Open every shard; false where the route was removed meanwhile.

        The registry decides, so it is read again before a shard that has another life (a failover
        lost one of them) is taken over, and after any was written.
        """
        shards = [Shard(self._namespace, name, number) for number in range(life.shards)]
        before = {shard: self._opened_if_there(shard, life) for shard in shards}
        changed = {
            shard: other for shard, other in before.items() if other not in (None, life.text)
        }
        if not changed:
            return True
        if self._entered(name, "", None) != life:
            return False
        for shard, other in changed.items():
            if other:
                self._opened_if_there(shard, life, other)
        return True

    def _opened_if_there(self, shard: Shard, life: Life, replaced: str = "") -> str | None:
        """Open a shard as `_opened` does; None where its node of a Cluster is away.

        The call that needs the shard waits for that node, by its own patience.
        """
        try:
            return self._opened(shard, life, replaced)
        except StoreUnavailable:
            if not self._connection.is_cluster:
                raise
            return None

    def _opened(self, shard: Shard, life: Life, replaced: str = "") -> str:
        """Write a life to a shard without one, or with the replaced one; return the former."""
        given = ("", 0, life.text, replaced)
        patience_s = 0.0 if self._connection.is_cluster else self._repeat_for_s
        reply = self._connection.run(script("open"), shard.keys(), given, patience_s)
        return read_text(read_reply(reply.value, OpenReply).life)

    def _entered(self, name: str, value: str, shards: int | None) -> Life:
        given = (name, value, secrets.token_hex(EPOCH_BYTES))
        found, epoch = read_reply(self._run("registry/enter", *given), EntryReply)
        life_epoch = read_text(epoch)
        if not found:
            raise StoreUnfit(f"route {name}: the store does not have it: it was removed")
        if life_epoch == REMOVED:
            raise StoreUnfit(
                f"route {name}: it is being removed; wait for `duebridge store purge`, or repeat it"
            )
        registered = _parse(name, found)
        _check(name, registered, shards)
        return Life(life_epoch, registered.shards)

    def remove_route(
        self, name: str, shards: int, envelopes: int = 0, life: str | None = None
    ) -> bool:
        """Remove one life of a route, with its envelopes; an interrupted removal can be repeated.

        `life` is its epoch in `lives`, None for the present one. False if that life has ended: then
        another removal did it, and what began after it stays. Each shard goes at once; the server
        frees its memory in the background. Nobody can open the route meanwhile, and who has it open
        is refused. The end is journalled (`store.purges`), with the number of `envelopes` that the
        first attempt found, or of those that were removed. Raises `Indeterminate` after a step that
        too few replicas confirmed, before the next one begins.
        """
        known = self.lives().get(name, "") if life is None else life
        seen = self._shard_epochs(name, shards)  # before it begins: none is of a later life
        begun = self._leave(name, known, "begin", envelopes, secrets.token_hex(EPOCH_BYTES))
        if not begun.value:
            return False
        ending, is_first = begun.value
        try:
            removed = sum(self._removed(shard, ending, epoch) for shard, epoch in seen.items())
        except StoreUnfit as error:  # without the right nothing was removed
            if is_first:
                self._leave(name, ending, "undo")
            raise StoreUnfit(f"{error}; a removal needs the right +unlink") from error
        ended = self._leave(name, ending, "finish", shards, removed, self._connection.actor)
        return bool(ended.value) or ended.repeated

    def _shard_epochs(self, name: str, shards: int) -> dict[Shard, bytes]:
        route = [Shard(self._namespace, name, number) for number in range(shards)]
        with translated_errors():
            return {each: self._client.hget(each.key("meta"), "epoch") or b"" for each in route}

    def _removed(self, shard: Shard, life: bytes, seen: bytes) -> int:
        """Remove a shard with one of these epochs; return the number of its envelopes."""
        remove = partial(self._confirmed, "registry/remove", shard.keys())
        return int(remove((life, seen)).value)

    def _leave(self, name: str, life: str | bytes, *step: str | int) -> Reply:
        keys = (*self._keys, purged_key(self._namespace))
        return self._confirmed("registry/leave", keys, (name, life, *step))

    def _confirmed(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        """Run a script of a removal, which a promoted replica must not undo."""
        waits_for = self._removal_waits_for
        return self._connection.run(script(name), keys, arguments, self._repeat_for_s, waits_for)

    def lives(self) -> dict[str, str]:
        """Return the epoch of each route's life; of one that is being removed, the life that ends.

        A route that an older version registered may have none yet.
        """
        with translated_errors():
            found = self._client.hgetall(self._keys[1]).items()
        epochs = {name.decode(errors="backslashreplace"): read_text(value) for name, value in found}
        routes = {name: epoch for name, epoch in epochs.items() if not name.startswith(REMOVED)}
        return {
            name: epochs.get(REMOVED + name, "").partition(":")[0] if epoch == REMOVED else epoch
            for name, epoch in routes.items()
        }

    def routes(self) -> dict[str, RegisteredRoute]:
        """Return every route that was ever opened in the namespace."""
        with translated_errors():
            found = self._client.hgetall(self._keys[0]).items()
            names = {name.decode(errors="backslashreplace"): value for name, value in found}
            return {name: _parse(name, value) for name, value in names.items()}

    def shards(self) -> dict[str, int]:
        """Return the number of shards of each of these routes."""
        return {name: route.shards for name, route in self.routes().items()}

    def _run(self, name: str, *arguments: bytes | str) -> Any:
        run = partial(self._connection.run, script(name), self._keys, arguments)
        return run(self._repeat_for_s).value


def _parse(name: str, value: bytes) -> RegisteredRoute:
    layout, _, shards = value.partition(b":")
    if not (layout.isdigit() and shards.isdigit()):
        raise StoreError(f"route {name}: expected LAYOUT:SHARDS in the store; got {value[:40]!r}")
    return RegisteredRoute(int(layout), int(shards))


def _check(name: str, found: RegisteredRoute, shards: int | None) -> None:
    if found.layout > NEWEST_LAYOUT:
        raise StoreUnfit(
            f"route {name}: expected record layout {NEWEST_LAYOUT} or older; the store has"
            f" {found.layout}: upgrade duebridge"
        )
    if shards is not None and found.shards != shards:
        raise StoreUnfit(
            f"route {name}: expected shards: {found.shards}, as the store has it; got {shards}."
            " To change it, make a new route with that number and drain this one"
        )
