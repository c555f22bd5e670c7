"""The rights that `duebridge acl` prints: enough for everything, and for nothing else."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from redis.sentinel import Sentinel

from duebridge.errors import ConfigError, StoreError, StoreUnfit
from duebridge.store.batching import SharedRate
from duebridge.store.cold.notes import ColdNotes
from duebridge.store.delay_store import DelayStore
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge.store.life import RouteLife
from duebridge.store.positions import StorePositions
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.fitness import check_fitness, count_listeners, read_vitals
from duebridge.store.server.rights import CLUSTER, WRITE, commands_of, rights_of, sentinel_rights
from duebridge.store.workers import Workers
from tests.store.every_call import CALLS, fill_every_state
from tests.support.checkout import ROOT, missing
from tests.support.command import CONFIG as COMMON
from tests.support.command import Command, kill_due
from tests.support.desk import YEAR_MS, Desk
from tests.support.documented import documented_acl
from tests.support.redis.least import PASSWORD, grant, url_as
from tests.support.servers import free_port, listens, redis_server, wait_until

READONLY = "readonly"
READS = {"next", "get", "list", "stats", "histogram", "count_aside", "recall"}
CONFIG = (
    COMMON
    + "  letters: {{target: {{broker: here, topic: a}}, dead_letter: {{broker: here, topic: b}}}}"
)
# Rights for a Cluster, for sharded hints and durability, which one server alone does not use.
ELSEWHERE = {*CLUSTER, "spublish", "ssubscribe", "sunsubscribe", "pubsub|shardnumsub", "wait"}
# Rights that only rare moments use: another database, a flushed script, a Sentinel's check.
UNUSED = {"eval", "select", "role", "ping", "unsubscribe"}
DANGEROUS = ["KEYS *", "FLUSHALL", "FLUSHDB", "SCAN 0", "CONFIG GET *", "ACL LIST"]
DANGEROUS += ["CLIENT LIST", "MONITOR", "SAVE", "SHUTDOWN", "REPLICAOF NO ONE", "SCRIPT FLUSH"]
DANGEROUS += ["FUNCTION LIST", "MODULE LIST", "SLOWLOG GET", "RENAME {ns:r:0}:a {ns:r:0}:b"]


class Server(NamedTuple):
    """A Redis of the tests' own, with the users of the namespaces `ns` and `other`."""

    port: int
    admin: Any

    def url(self, user: str = "") -> str:
        url = f"redis://127.0.0.1:{self.port}/0"
        return url_as(url, user, PASSWORD) if user else url


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("redis")
    with redis_server(home) as port, redis.Redis(port=port) as admin:
        admin.config_set("appendonly", "yes")
        grant(admin, "ns", "ns")
        grant(admin, "other", "other")
        grant(admin, "duebridge", "duebridge")
        grant(admin, "duebridge", READONLY, role="readonly")
        yield Server(port, admin)


@pytest.fixture(scope="module")
def opened_as(own: Server) -> Iterator[Callable[[str], Connection]]:
    """Give the connection of a user, which is opened once."""
    with ExitStack() as stack:

        @cache
        def opened(user: str) -> Connection:
            connection = stack.enter_context(closing(open_connection(own.url(user))))
            if user != READONLY:
                connection.load_scripts()
            return connection

        yield opened


@pytest.fixture
def as_ns(own: Server, opened_as: Callable[[str], Connection]) -> Connection:
    own.admin.flushall()
    return opened_as("ns")


# ── enough ──────────────────────────────────────────────────────────────────────────────────────


def test_operator_runs_every_command_line_a_worker_and_the_pace_with_no_right_to_spare(
    own: Server, as_ns: Connection, tmp_path: Path
) -> None:
    own.admin.execute_command("ACL", "LOG", "RESET")
    own.admin.config_resetstat()
    live_as_library(as_ns)
    live_as_operator(Command(tmp_path, own.url("duebridge"), CONFIG))
    assert [each["object"] for each in own.admin.acl_log()] == []
    stats = own.admin.execute_command("INFO", "commandstats")
    used = {name.removeprefix("cmdstat_") for name in stats}
    assert set(commands_of("operator")) - used - UNUSED == ELSEWHERE - UNUSED


def live_as_library(connection: Connection) -> None:
    desk = Desk(connection, "ns", cold_tier_ms=YEAR_MS)
    fill_every_state(desk)
    for call in CALLS.values():
        call(desk.store)
    page = desk.store.list("dead", limit=1)
    assert desk.store.list("dead", limit=1, cursor=page.cursor).entries != page.entries
    desk.again(journal_cap_bytes=1).cancel("f")
    cold = ColdNotes(connection, desk.shard)
    cold.new_generation()
    cold.note_first(1)
    cold.note_hydrated(2)
    assert (list(cold.marks()), cold.is_void("B", "x"), cold.tombstone("x")) is not None
    journal = Journal(connection, desk.shard)
    journal.note_kept(1)
    assert list(journal.read(0, journal.last()))
    assert journal.before_newest(1) <= journal.last()
    positions = StorePositions(connection, "ns", "orders")
    positions.write("log", 7)
    assert positions.read("log") == 7
    assert SharedRate(connection, "ns", "run", 1000).take(10).units == 10
    assert count_listeners(connection, [desk.shard]) == [0]
    assert read_vitals(connection).is_primary
    assert check_fitness(connection) == []


def live_as_operator(duebridge: Command) -> None:
    """Run every command, and a worker until nothing waits."""

    def yes(*words: str, code: int = 0) -> str:
        done = duebridge(*words)
        assert done.code == code, (words, done)
        return done.out

    yes("send", "reminders", "x", "--delay", "1h", "--id", "a")
    yes("send", "reminders", "x", "--delay", "1ms", "--id", "b")
    kill_due(duebridge, 1, "E\nno")
    yes("reschedule", "reminders", "a", "--delay", "2h")
    yes("dead", "show", "reminders", "b")
    yes("dead", "replay", "reminders", "b")
    yes("dead", "shunt", "letters", code=1)
    yes("cancel", "reminders", "a")
    yes("run", "--until-empty")
    for command in ("stats", "events", "top --once", "doctor", "ls reminders", "dead ls reminders"):
        yes(*command.split())
    yes("get", "reminders", "a", code=1)
    yes("config", "check", "--connect")
    yes("store", "purge", "reminders", "--yes")


def test_operators_rights_have_every_command_of_every_script() -> None:
    used = commands_called((ROOT / "lua").rglob("*.lua"))
    assert used
    assert used <= set(commands_of("operator"))


def commands_called(scripts: Iterable[Path]) -> set[str]:
    sources = "".join(path.read_text() for path in scripts)
    return {name.lower() for name in re.findall(r"redis\.call\('([A-Z]+)'", sources)}


def test_connecting_to_valkey_asks_for_no_right_to_spare(valkey: Connection) -> None:
    admin: Any = valkey.client
    grant(admin, "ns")
    path = admin.connection_pool.connection_kwargs["path"]
    admin.execute_command("ACL", "LOG", "RESET")
    with closing(open_connection(f"unix://least:{PASSWORD}@{path}")) as connection:
        connection.load_scripts()
        live_as_library(connection)
    assert [each["object"] for each in admin.acl_log()] == []


def test_sentinels_take_the_rights_of_their_user(tmp_path: Path) -> None:
    settings = tmp_path / "sentinel.conf"
    with redis_server(tmp_path) as master, sentinel_of(settings, master) as admin:
        words = ("ACL", "SETUSER", "asks", "on", f">{PASSWORD}", *sentinel_rights())
        admin.execute_command(*words)
        port = admin.connection_pool.connection_kwargs["port"]
        login = {"username": "asks", "password": PASSWORD}
        asking = Sentinel([("127.0.0.1", port)], sentinel_kwargs={**login, "driver_info": None})
        assert asking.discover_master("m") == ("127.0.0.1", master)
        assert admin.acl_log() == []
        asking.sentinels[0].close()


@contextmanager
def sentinel_of(settings: Path, master: int) -> Iterator[Any]:
    """Run a sentinel that watches a master; give a client of it that may do everything."""
    port = free_port()
    settings.write_text(f"port {port}\nsentinel monitor m 127.0.0.1 {master} 1\n")
    program = shutil.which("redis-server") or missing("redis-server", "install Redis 7")
    words = [program, str(settings), "--sentinel"]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port), "the sentinel")
        with redis.Redis(port=port) as admin:
            yield admin
    finally:
        server.kill()
        server.wait()


def test_documented_rights_are_those_that_are_printed() -> None:
    assert documented_acl() == rights_of("operator", "duebridge")


# ── and nothing else ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("line", DANGEROUS)
def test_operator_runs_no_other_command(line: str, as_ns: Connection) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        as_ns.client.execute_command(*line.split())  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("key", ["x", "{ns2:r:0}:pending", "{n}:routes", "{ns}x", "ns:routes"])
def test_operator_touches_no_other_key(key: str, as_ns: Connection) -> None:
    client: Any = as_ns.client
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.set(key, 1)
    with pytest.raises(redis.exceptions.ResponseError, match=r"can't access|ACL failure"):
        client.eval("return redis.call('SET', ARGV[1], 1)", 0, key)


@pytest.mark.parametrize("channel", ["x", "{other:r:0}:wake", "{ns:r:0}:other"])
def test_operator_hears_and_says_nothing_on_other_channels(channel: str, as_ns: Connection) -> None:
    client: Any = as_ns.client
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.publish(channel, 1)
    with client.pubsub() as listener:
        listener.subscribe(channel)
        with pytest.raises(redis.exceptions.NoPermissionError):
            listener.get_message(timeout=10)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_call_of_another_namespace_is_refused_and_changes_nothing(
    name: str, opened_as: Callable[[str], Connection], as_ns: Connection
) -> None:
    desk = Desk(as_ns, "ns")
    fill_every_state(desk)
    store = DelayStore(opened_as("other"), desk.shard)
    with desk.unchanged(), pytest.raises(StoreUnfit, match="refused us"):
        CALLS[name](store)  # which asks for the route's life only after it


SHARD = Shard("ns", "route", 0)
BESIDE: dict[str, Callable[[Connection], Any]] = {
    "routes": lambda other: Registry(other, "ns").routes(),
    "open": lambda other: Registry(other, "ns").open_route("r", 1),
    "remove": lambda other: Registry(other, "ns").remove_route("route", 1),
    "workers": lambda other: Workers(other, "ns").read(),
    "pace": lambda other: SharedRate(other, "ns", "run", 1000).take(1),
    "journal": lambda other: Journal(other, SHARD).last(),
    "cold": lambda other: ColdNotes(other, SHARD).new_generation(),
}


@pytest.mark.parametrize("name", sorted(BESIDE))
def test_what_lies_beside_the_shards_of_another_namespace_is_refused(
    name: str, opened_as: Callable[[str], Connection], as_ns: Connection
) -> None:
    Desk(as_ns, "ns").pending("a")
    with pytest.raises(StoreError):
        BESIDE[name](opened_as("other"))


def test_rights_of_a_namespace_that_is_a_glob_are_refused() -> None:
    for glob in ("*", "a*", "a?", "[a]", "", "a b", "{a", "a:b"):
        with pytest.raises(ConfigError, match="namespace"):
            rights_of("operator", glob)


# ── who only looks ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def commands(
    own: Server, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Command, Command, dict[bytes, bytes]]:
    """The command for both roles, and what the store had when it was filled: nothing as yet."""
    users = ("duebridge", READONLY)
    operator, readonly = (Command(tmp_path_factory.mktemp(user), own.url(user)) for user in users)
    return operator, readonly, {}


@pytest.fixture
def filled(
    own: Server, commands: tuple[Command, Command, dict[bytes, bytes]]
) -> tuple[Command, Command]:
    """The command on a store with an envelope in pending and a dead one, for both roles."""
    operator, readonly, was = commands
    if not was or contents(own.admin) != was:
        own.admin.flushall()
        fill(operator)
        was.clear()
        was.update(contents(own.admin))
    return operator, readonly


def fill(operator: Command) -> None:
    assert operator("send", "reminders", "x", "--delay", "1ms", "--id", "gone").code == 0
    kill_due(operator, 1, "E\nno")
    assert operator("send", "reminders", "x", "--delay", "1h", "--id", "a").code == 0


LOOKING = ["stats", "doctor", "get reminders a", "ls reminders", "events", "config check --connect"]
LOOKING += ["stats --histogram"]
LOOKING += ["dead ls reminders", "dead show reminders gone"]
CHANGING = [
    "send reminders x --delay 1h",
    "cancel reminders a",
    "reschedule reminders a --delay 3h",
]
CHANGING += ["deliver-now reminders a"]
CHANGING += ["dead replay reminders gone", "dead drop reminders gone"]


@pytest.mark.parametrize("line", LOOKING)
def test_readonly_user_sees_what_the_operator_sees(
    line: str, filled: tuple[Command, Command]
) -> None:
    operator, readonly = (command(*line.split(), "--output", "json") for command in filled)
    assert readonly.code == 0, readonly
    assert len(readonly.json_lines()) == len(operator.json_lines()) > 0


@pytest.mark.parametrize("line", CHANGING)
def test_readonly_user_changes_nothing_and_is_told_why(
    line: str, filled: tuple[Command, Command], own: Server
) -> None:
    before = contents(own.admin)
    _, readonly = filled
    done = readonly(*line.split())
    assert done.code == 3
    assert "the delay store refused us" in done.err
    assert "Traceback" not in done.err
    assert contents(own.admin) == before


def contents(admin: Any) -> dict[bytes, bytes]:
    return {key: admin.dump(key) for key in admin.scan_iter()}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_call_of_a_readonly_user_reads_or_is_refused(
    name: str, own: Server, opened_as: Callable[[str], Connection]
) -> None:
    own.admin.flushall()
    desk = Desk(opened_as("duebridge"), "duebridge", cold_tier_ms=YEAR_MS)
    fill_every_state(desk)
    with desk.unchanged():
        try:
            CALLS[name](Desk(opened_as(READONLY), "duebridge", cold_tier_ms=YEAR_MS).store)
        except StoreUnfit:
            assert name not in READS


# ── who lacks one right ─────────────────────────────────────────────────────────────────────────

NEEDED = ["hset", "hsetnx", "hdel", "hincrby", "zadd", "zrem", "zremrangebyrank", "xadd", "xdel"]
OF_COLD_TIERS = {"bitfield", "unlink"}


def test_every_write_of_the_shards_scripts_is_asked_for_but_those_of_cold_tiers() -> None:
    called = commands_called([*(ROOT / "lua").glob("*.lua"), *(ROOT / "lua/shared").glob("*.lua")])
    assert called & set(WRITE) == {*NEEDED, "publish"} | OF_COLD_TIERS


@pytest.mark.parametrize("command", [*NEEDED, "publish"])
def test_first_call_without_one_right_names_it_and_changes_nothing(
    command: str, own: Server, as_ns: Connection
) -> None:
    desk = Desk(as_ns, "ns")
    desk.pending("a")
    life = RouteLife(Registry(as_ns, "ns"), desk.shard.route)
    own.admin.execute_command("ACL", "SETUSER", "ns", f"-{command}")
    try:
        with (
            desk.unchanged(),
            pytest.raises(StoreUnfit, match=f"may not run {command.upper()};.*duebridge acl"),
        ):
            life.look()
    finally:
        own.admin.execute_command("ACL", "SETUSER", "ns", f"+{command}")
    assert life.look() == 1
