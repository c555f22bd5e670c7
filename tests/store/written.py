"""Every script that writes, asked as `DelayStore` asks it, under a life of the test's choice."""

from collections.abc import Sequence
from typing import Any

from duebridge.store.delay_store import DelayStore
from duebridge.store.life import RouteLife
from duebridge.store.registry import Life, Registry
from duebridge.store.server.connection import Argument, Connection, Reply
from duebridge.store.server.scripts import Script, names, script
from tests.store.every_call import CALLS
from tests.support.desk import Desk

READING = ("count_aside", "get", "histogram", "list", "next", "recall", "split", "stats")
WRITING = [name for name in names() if name not in (*READING, "open", "renew")]
LIFE_AT = 2  # of the arguments: lua/shared/life.lua


class _Asked(Exception):
    """The arguments of a call."""


class _Asking(Connection):
    def run(self, _: Script, __: Sequence[str], arguments: Sequence[Argument], *___: Any) -> Reply:
        raise _Asked(*arguments)


def ask(desk: Desk, name: str, life: str | bytes) -> Any:
    """Run the script of one call under a life, without the store's way to mend a refusal."""
    asking = _Asking(None)  # type: ignore[arg-type]
    known = RouteLife(Registry(asking, desk.shard.namespace), desk.shard.route)
    try:
        CALLS[name](DelayStore(asking, desk.shard, now_ms=desk.clock, life=known, cold_tier_ms=9))
    except _Asked as asked:
        arguments = list(asked.args)
    arguments[LIFE_AT] = life
    return desk.connection.run(script(name), desk.shard.keys(), arguments).value


def life_of(desk: Desk) -> Life:
    """The life that the shard has."""
    epoch, shards = desk.client.hmget(desk.key("meta"), "epoch", "shards")
    return Life(epoch.decode(), int(shards))
