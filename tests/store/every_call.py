"""One call of each method of the delay store, on a shard with something in every state.

Also the script behind each call, under a life of the test's choice."""

from collections.abc import Callable, Sequence
from typing import Any

from duebridge.ports.publisher import Reason
from duebridge.store.delay_store import DelayStore
from duebridge.store.life import RouteLife
from duebridge.store.registry import Life, Registry
from duebridge.store.server.connection import Argument, Connection, Reply
from duebridge.store.server.scripts import Script, names, script
from duebridge.store.wire.transitions import KeptMessage
from tests.support.desk import Desk, acks, aside, burial, envelope, postponed, retrying

READING = ("count_aside", "get", "histogram", "list", "next", "recall", "split", "stats")
WRITING = [name for name in names() if name not in (*READING, "open", "renew")]
LIFE_AT = 2  # of the arguments: lua/shared/life.lua
TOKEN = bytes(range(12))
CALLS: dict[str, Callable[[DelayStore], Any]] = {
    "next": lambda store: store.next(),
    "schedule": lambda store: store.schedule([envelope("a"), envelope("b")], max_delay_ms=10**9),
    "promote": lambda store: store.promote(),
    "claim": lambda store: store.claim(9, 30_000),
    "ack": lambda store: store.ack(acks(TOKEN, "a")),
    "retry": lambda store: store.retry(
        TOKEN, [retrying("b", delay_ms=9, unsure=True, error="E\nno")]
    ),
    "set_aside": lambda store: store.set_aside(TOKEN, [aside("b")]),
    "resume": lambda store: store.resume("THETARGT", 9),
    "probe": lambda store: store.probe("THETARGT", 30_000, 9),
    "readdress": lambda store: store.readdress("kafka:dlt", 9),
    "release": lambda store: store.release(TOKEN, ["c"]),
    "bury": lambda store: store.bury(TOKEN, [burial("d")]),
    "reclaim": lambda store: store.reclaim(),
    "shunt": lambda store: store.shunt(9, 30_000),
    "postpone": lambda store: store.postpone(TOKEN, postponed("d"), "t"),
    "keep": lambda store: store.keep([KeptMessage(envelope("k"), Reason.INVALID, "E\nno")]),
    "replay": lambda store: store.replay(["d", "e"]),
    "drop": lambda store: store.drop(["d", "e"]),
    "cancel": lambda store: store.cancel("e"),
    "reschedule": lambda store: store.reschedule("f", "+70", 10**9),
    "get": lambda store: store.get("a"),
    "list": lambda store: store.list("unack"),
    "stats": lambda store: store.stats(),
    "histogram": lambda store: store.histogram([0, 10**12, 10**13]),
    "count_aside": lambda store: store.count_aside(9),
    "recall": lambda store: store.recall([("a", bytes(8))]),
    "split": lambda store: store.split("pending", 1),
    "forget": lambda store: store.forget(),
    "demote": lambda store: store.demote("B", 0, [("f", 1), ("g", 2)]),
    "renew": lambda store: store.renew(),
    "generation": lambda store: store.new_generation(),
    "note": lambda store: store.note("journal_kept", 1, "rise"),
    "watch": lambda store: store.watch("w", 15_000),
    "occupy": lambda store: store.occupy("T", 30_000, "me"),
    "mark": lambda store: store.mark(["f"], 1, ""),
    "sift": lambda store: store.begin_sift(2, 1, ""),
    "vacate": lambda store: store.vacate("T"),
    "lift": lambda store: store.lift(1, ["tf", "xB/f"]),
}


def fill_every_state(desk: Desk) -> None:
    desk.dead("d", "e")
    desk.retry("b", failed=True, error="E\nno", delay_ms=10**6)
    desk.unack("a", "c")
    desk.ready("g", "h")
    desk.pending("f")


class Asked(Exception):
    """What a method hands to the connection: the script's name, keys and arguments."""


class Asking(Connection):
    """A connection that gets no further than the request."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]

    def run(
        self, called: Script, keys: Sequence[str], arguments: Sequence[Argument], *_: Any
    ) -> Reply:
        raise Asked(called.name, keys, arguments)


def ask(desk: Desk, name: str, life: str | bytes) -> Any:
    """Run the script of one call under a life, without the store's way to mend a refusal."""
    asking = Asking()
    known = RouteLife(Registry(asking, desk.shard.namespace), desk.shard.route)
    try:
        CALLS[name](DelayStore(asking, desk.shard, now_ms=desk.clock, life=known, cold_tier_ms=9))
    except Asked as asked:
        arguments = list(asked.args[2])
    arguments[LIFE_AT] = life
    return desk.connection.run(script(name), desk.shard.keys(), arguments).value


def life_of(desk: Desk) -> Life:
    """The life that the shard has."""
    epoch, shards = desk.client.hmget(desk.key("meta"), "epoch", "shards")
    return Life(epoch.decode(), int(shards))
