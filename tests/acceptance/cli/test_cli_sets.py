"""Every command once on a Sentinel set and on a Cluster of six, as the user with the least rights.

`events --follow` also over a failover of each, and while a node of the Cluster is away.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from duebridge.producer import Producer
from duebridge.store.routing import shard_number
from tests.support.command import Command, kill_due, wait_until
from tests.support.redis.least import granted, url_as
from tests.support.redis.redis_node import RedisNode
from tests.support.redis.redis_sets import SETS, AnySet, ClusterOfSix
from tests.support.serving import serving

NAMESPACES = "duebridge*"  # the command's, and that of serve
pytestmark = [pytest.mark.long, pytest.mark.timeout(480)]

CONFIG = """\
version: 1
store: {{url: "{url}", durability: {{replicated: {{replicas: N, timeout: 1500ms}}}}}}
brokers:
  here: {{type: memory}}
routes:
  reminders:
    target: {{broker: here, topic: reminders}}
    dead_letter: {{broker: here, topic: letters}}
  others: {{target: {{broker: here, topic: others}}, shards: 6}}
intakes:
  asked: {{source: {{broker: here, queue: asked}}, route: reminders}}
"""
JOURNALLED = [  # by the commands below
    ("accepted", "a"), ("accepted", "b"), ("accepted", "c"), ("accepted", "d"),
    ("rescheduled", "c"), ("rescheduled", "b"), ("rescheduled", "a"), ("dead", "a"),
    ("dead", "b"), ("replayed", "a"), ("dropped", "b"), ("cancelled", "c"),
]  # fmt: skip


class Place(NamedTuple):
    """A set, and the command on it."""

    run: Command
    set: AnySet

    def done(self, *words: str) -> str:
        """Return what a command printed that did what it was told."""
        done = self.run(*words)
        assert done.code == 0, (words, done.out, done.err)
        return done.out

    def is_sent(self, name: str) -> bool:
        """Send an envelope (again), and tell whether the store has it."""
        self.run("send", "reminders", "x", "--delay", "1h", "--id", name)
        return self.run("get", "reminders", name).code == 0


class Followed(NamedTuple):
    """`events --follow` as it runs."""

    process: "subprocess.Popen[bytes]"

    @classmethod
    def on(cls, place: Place) -> "Followed":
        return cls(place.run.start("events", "--follow", "--output", "json"))

    def next_id(self) -> str:
        """Return the id of the next event, once it is printed."""
        assert self.process.stdout is not None
        found: str = json.loads(self.process.stdout.readline())["id"]
        return found

    def said(self) -> bytes:
        """Return the next line that people see."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self) -> tuple[int, bytes]:
        """Press Ctrl-C; return the exit code, and the events that nobody has read."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


@contextmanager
def opened(kind: str, home: Path) -> Iterator[Place]:
    """Run a set whose servers have a user with the printed rights, by which the command comes."""
    config = CONFIG.replace("N", "1" if kind == "cluster" else "2")
    with (
        SETS[kind](home / "set", "--appendonly", "yes") as running,
        granted(running.nodes, NAMESPACES),
    ):
        yield Place(Command(home, url_as(running.url), config), running)


@pytest.fixture(scope="module", params=SETS)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with opened(request.param, tmp_path_factory.mktemp("set")) as place:
        yield place


SCHEDULING = [
    "config check --connect",
    "send reminders x --delay 1h --id a",
    "send reminders x --delay 1h --id b",
    "send reminders x --delay 1h --id c",
    "send others x --delay 1h --id d",
    "doctor",
    "get reminders a",
    "reschedule reminders c --delay 2h",
    "stats",
    "stats --histogram",
    "top --once",
    "ls reminders",
    "ls others --state pending",
    "intake ls",
    "deliver-now reminders b",
    "deliver-now reminders a",
]
BENCH = "bench --only memory,scripts,idle --rounds 1 --pending 200 --calls 2 --seconds 0.3"
SETTLING = [
    "dead ls reminders",
    "dead show reminders a",
    "dead replay reminders a --delay 1h",
    "dead drop reminders b",
    "cancel reminders c",
]


def test_every_command_does_its_work_on_a_set(place: Place) -> None:
    for words in SCHEDULING:
        place.done(*words.split())
    kill_due(place.run, 2, "Refused\ntoo large")
    for words in SETTLING:
        place.done(*words.split())
    lines = place.done("events", "--since", "1h", "--output", "json").splitlines()
    found = [(event["kind"], event["id"]) for event in map(json.loads, lines)]
    assert sorted(found) == sorted(JOURNALLED)
    place.done("deliver-now", "reminders", "a")
    place.done("deliver-now", "others", "d")
    place.done("run", "--until-empty")
    place.done("store", "purge", "--all", "--yes")


@pytest.mark.parametrize("kind", SETS)
def test_events_follow_in_a_failover_prints_each_event_once(kind: str, tmp_path: Path) -> None:
    ids = ["before", "after"]
    with opened(kind, tmp_path) as place:
        wait_until(lambda: place.is_sent(ids[0]), "an envelope")
        events = Followed.on(place)
        assert events.next_id() == ids[0]
        place.set.kill_master("{duebridge:reminders:0}")
        assert events.said().endswith(b"; waiting for the store\n")
        wait_until(lambda: place.is_sent(ids[1]), "an envelope on the new master")
        assert events.next_id() == ids[1]
        assert events.end() == (130, b"")


class Parting(NamedTuple):
    """A Cluster, and what can be taken away from it: a master and its replicas.

    They have no shard of `reminders`, nor the registry; of `others` they have `name`.
    """

    place: Place
    producer: Producer
    nodes: list[RedisNode]
    name: str

    def leave(self) -> None:
        """Stop the nodes' answers; once killed they would not know the user any more."""
        for each in self.nodes:
            each.freeze()

    def schedule(self, route: str, name: str) -> None:
        self.producer.schedule(route, "x", delay="1h", id=name)

    def come_back(self, events: Followed) -> None:
        """Let the nodes answer again; the next event is theirs, and the last one."""
        for each in self.nodes:
            each.resume()
        assert isinstance(self.place.set, ClusterOfSix)
        self.place.set.await_whole()
        self.schedule("others", self.name)
        assert events.next_id() == self.name
        events.end()


@pytest.fixture
def parting(tmp_path: Path) -> Iterator[Parting]:
    with (
        opened("cluster", tmp_path) as place,
        closing(Producer.from_config(place.run.file)) as producer,
    ):
        assert isinstance(place.set, ClusterOfSix)
        wait_until(lambda: place.is_sent("before"), "an envelope")
        away, name = spare_master(place.set)
        yield Parting(place, producer, [*place.set.replicas_of(away), away], name)


def spare_master(cluster: ClusterOfSix) -> tuple[RedisNode, str]:
    """A master that has no shard of `reminders` and no registry, and an id of `others` it has."""
    needed = [cluster.owner_of(key) for key in ("{duebridge:reminders:0}", "{duebridge}")]
    away = next(each for each in cluster.masters() if each not in needed)
    name = next(
        each
        for each in map(str, range(100))
        if cluster.owner_of(f"{{duebridge:others:{shard_number(each, 6)}}}") is away
    )
    return away, name


def test_events_follow_goes_on_without_a_node_that_stays_away(parting: Parting) -> None:
    events = Followed.on(parting.place)
    assert events.next_id() == "before"
    parting.leave()
    assert events.said().endswith(b"; waiting for the store\n")
    parting.schedule("reminders", "during")
    assert events.next_id() == "during"
    assert b"going on without" in events.said()
    parting.come_back(events)


def test_events_follow_begun_while_a_node_is_away_goes_on_without_it(parting: Parting) -> None:
    parting.leave()
    events = Followed.on(parting.place)
    assert events.next_id() == "before"
    assert b"going on without" in events.said()
    parting.schedule("reminders", "during")
    assert events.next_id() == "during"
    parting.come_back(events)


def test_bench_measures_a_set(place: Place, kafka_bootstrap: str) -> None:
    words = [*BENCH.split(), "--store", place.set.url, "--kafka", kafka_bootstrap]
    rows = [json.loads(line) for line in place.done(*words, "--output", "json").splitlines()]
    assert {row["section"] for row in rows} == {"memory", "scripts", "idle"}


def test_serve_takes_reads_and_cancels_on_a_set(place: Place) -> None:
    path = "/v1/routes/orders/envelopes"
    with (
        serving(place.run.home / "duebridge-served", place.run.url) as served,
        served.client() as client,
    ):
        sent = {"body": "x", "delay": "15m", "id": "a"}
        assert client.post(path, json=sent).status_code == 201
        assert client.get(f"{path}/a").json()["state"] == "pending"
        assert client.delete(f"{path}/a").json()["status"] == "cancelled"
