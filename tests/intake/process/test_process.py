"""A real process with an intake: it drains at SIGTERM, runs alone, and says what it lacks."""

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.server.connection import open_connection
from duebridge.store.wire.poll import Poll
from tests.support.checkout import ROOT
from tests.support.redis.redis_node import RedisNode
from tests.support.servers import wait_until

SEEDED = Path(__file__).with_name("seeded_run.py")
WITHIN_S = 60.0
ENDS_WITHIN_S = 4 + 2 + 2 + 12  # drain, publish_deadline, 2 s, and what a busy machine may take
CONFIG = """\
version: 1
store: {{url: "{url}", namespace: {namespace}}}
brokers: {{box: {{type: memory}}}}
worker: {{drain: 4s, publish_deadline: 2s}}
routes:
  r: {{target: {{broker: box, topic: t}}, dead_letter: {{broker: box, topic: dead}}}}
intakes:
  in: {{source: {{broker: box, queue: q}}, route: r}}
  other: {{source: {{broker: box, queue: other}}, route: r}}
"""


class Program:
    """A process that takes seeded messages in."""

    def __init__(self, home: Path, url: str) -> None:
        self.url = url
        self.namespace = f"test-{secrets.token_hex(6)}"
        self.file = home / "duebridge.yaml"
        self.file.write_text(CONFIG.format(url=url, namespace=self.namespace))
        self.err = home / "err.log"

    @contextmanager
    def running(
        self, count: int, *words: str, delay_ms: int = 3_600_000, late: bool = False
    ) -> "Iterator[subprocess.Popen[str]]":
        command = [sys.executable, str(SEEDED), "q", str(count), str(delay_ms)]
        command += [*["late"] * late, "run", "--config", str(self.file), *words]
        with self.err.open("wb") as err:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=err, cwd=ROOT, text=True
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def log(self, event: str) -> list[dict[str, object]]:
        whole, _, _ = self.err.read_text().rpartition("\n")  # the last may be half written
        lines = map(json.loads, whole.splitlines())
        return [line for line in lines if line["event"] == event]

    def poll(self) -> Poll:
        connection = open_connection(self.url)
        try:
            return DelayStore(connection, Shard(self.namespace, "r", 0)).next()
        finally:
            connection.close()


def settled(process: "subprocess.Popen[str]", at_least: int) -> int:
    """Read how many messages are settled until there are so many."""
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= at_least:
            return int(line)
    return 0


@pytest.fixture
def program(tmp_path: Path, redis_url: str) -> Program:
    return Program(tmp_path, redis_url)


def test_stop_settles_what_is_in_hand_and_exits_0(program: Program) -> None:
    with program.running(20_000) as process:
        assert settled(process, 1) >= 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
        last = max([int(line) for line in process.stdout or ()], default=0)

    events = [line["event"] for line in map(json.loads, program.err.read_text().splitlines())]
    assert events.index("intakes_drained") < events.index("drained")
    assert 0 < last <= program.poll().envelopes


def test_run_only_takes_in_and_delivers_nothing(program: Program) -> None:
    with program.running(700, "--only", "intake:in", "--health-port", "0", delay_ms=0) as process:
        assert settled(process, 700) == 700
        wait_until(lambda: program.log("health"), "the health server", WITHIN_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0

    poll = program.poll()
    assert (poll.envelopes, poll.first_pending_ms <= poll.now_ms) == (700, True)
    assert program.log("intakes_started")[0]["intakes"] == ["in"]


def test_run_delivers_what_its_intakes_take_in(program: Program) -> None:
    with program.running(100, "--until-empty", delay_ms=0) as process:
        assert settled(process, 100) == 100
        assert process.wait(WITHIN_S) == 0

    assert program.poll().envelopes == 0
    assert program.log("intakes_started")[0]["intakes"] == ["in", "other"]


def test_run_until_empty_delivers_what_came_in_after_the_store_was_seen_empty(
    program: Program,
) -> None:
    with program.running(0, "--until-empty", delay_ms=2_000, late=True) as process:
        assert settled(process, 1) == 1
        assert process.wait(WITHIN_S) == 0

    assert program.poll().envelopes == 0
    events = [line["event"] for line in map(json.loads, program.err.read_text().splitlines())]
    assert events.count("intakes_drained") == 1


def test_stop_while_the_store_is_away_ends_in_time_and_settles_nothing(
    tmp_path: Path, own_redis: RedisNode
) -> None:
    program = Program(tmp_path, own_redis.url)
    with program.running(20_000, "--only", "intake:in") as process:
        settled(process, 1)
        own_redis.kill()
        wait_until(lambda: program.log("intake_store_unavailable"), "the outage", WITHIN_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENDS_WITHIN_S) == 0


def test_reload_of_intakes_alone_takes_routes_and_refuses_other_intakes(program: Program) -> None:
    text = program.file.read_text()
    with program.running(1, "--only", "intake:in") as process:
        assert settled(process, 1) == 1
        program.file.write_text(text.replace("topic: t}", "topic: u}"))
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: program.log("config_swapped"), "the swap", WITHIN_S)
        program.file.write_text(text.replace("queue: other", "queue: another"))
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: program.log("config_refused"), "the refusal", WITHIN_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0

    assert program.log("config_swapped")[0]["changed"] == ["r"]
    assert program.log("config_refused")[0]["reasons"] == [
        "intakes.other: is read at the start; restart the worker for another"
    ]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "intake:inn",
            "expected one of the configuration (in, other); got 'inn', did you mean in?",
        ),
        ("lanes", "--only: expected intake:NAME; got 'lanes'"),
    ],
)
def test_run_only_of_an_unknown_intake_is_refused(program: Program, word: str, said: str) -> None:
    with program.running(0, "--only", word) as process:
        assert process.wait(WITHIN_S) == 2

    assert said in program.err.read_text()
