"""Very many envelopes due in one instant: how long that holds the store up, and what it leaves.

A store of its own, whose append-only file is rewritten in the middle of it, a Kafka topic of its
own, and one worker as it is by default, which says how much each of its calls touched. The bounds
are the contract's, and R7, R8 and R9 of the goals.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import redis
from kafka.admin import KafkaAdminClient

from duebridge.bench.figures import percentile
from duebridge.envelope import Envelope
from duebridge.producer import Producer
from duebridge.store.delay_store import MAX_BATCH, MAX_BATCH_BYTES, READY_FULL, DelayStore
from duebridge.store.server.scripts import names, script
from tests.faults.judgement import SLOWER
from tests.faults.observed_worker import read_touched
from tests.faults.rig import meanwhile
from tests.faults.scenario import Bound, Result
from tests.faults.servers.brokers import unread
from tests.faults.servers.storage import Storage, dataset_bytes
from tests.support.checkout import ROOT
from tests.support.servers import redis_server, wait_until

TAKE_SLOW = ("--slowlog-log-slower-than", "100", "--slowlog-max-len", "1000000")  # of redis-server
P999_MS, MOST_MS, SLOW_MS = 5.0, 50.0, 10.0
BODY_BYTES, LARGE_BYTES = 200, 262_144  # the most that a route takes by default
SCHEDULED_PER_S = 10_000  # and bytes, at least: the burst is due once all are in
SCHEDULED_BYTES_PER_S = 10_000_000
DRAINED_WITHIN_S = 600.0
LOOK_EVERY_S = 0.02
JOURNAL_MIB = 65  # its cap, and an entry
PARTITIONS = 4
OPTIONS = ("--appendonly", "yes", "--latency-tracking", "no", *TAKE_SLOW)
CONFIG = """
version: 1
store: {{url: "{store}", namespace: burst}}
brokers: {{side: {{type: kafka, bootstrap_servers: ["{kafka}"]}}}}
routes: {{burst: {{target: {{broker: side, topic: {topic}}}}}}}
"""


class Most(msgspec.Struct):
    """What was the most while it was delivered, and how fast that went."""

    ready: int = 0
    per_s: float = 0.0

    def look(self, store: DelayStore) -> None:
        self.ready = max(self.ready, store.next().ready)


class Burst:
    """One run of it; `close` it, or a worker stays."""

    def __init__(
        self, kafka: str, home: Path, seed: str, count: int, body_bytes: int, port: int
    ) -> None:
        self._kafka, self._home, self._seed = kafka, home, seed
        self._count, self._body_bytes = count, body_bytes
        self._topic = f"burst-{seed}"
        self._began = time.monotonic()
        url = f"redis://127.0.0.1:{port}/0"
        path = home / "duebridge.yaml"
        path.write_text(CONFIG.format(store=url, kafka=kafka, topic=self._topic))
        self._storage = Storage(url, path)
        self._client, self._connection = self._storage.client, self._storage.connection
        put_first(self._client.info("server")["process_id"])
        self._producer = Producer.from_config(path)
        (self._store,) = self._storage.shards
        self._touched = home / "touched.jsonl"
        self._create_topic()
        self._worker = self._start_worker(path)

    def _create_topic(self) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=self._kafka)) as admin:
            configs = {"message.timestamp.type": "LogAppendTime"}
            wanted = {"num_partitions": PARTITIONS, "replication_factor": 1, "configs": configs}
            admin.create_topics({self._topic: wanted})

    def _start_worker(self, config: Path) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.faults.observed_worker", str(self._touched)]
        command += ["--config", str(config), "run"]
        log = self._home / "worker.log"
        with log.open("wb") as file:
            worker = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT)
        wait_until(lambda: b'"started"' in log.read_bytes(), f"the worker, see {log}")
        return worker

    # ── the run ─────────────────────────────────────────────────────────────────────────────────

    def run(self) -> Result:
        """Schedule all, wait until all was delivered, and judge what was seen."""
        due_ms = self._store.next().now_ms + self._lead_ms()
        envelopes = (self._envelope(place, due_ms) for place in range(self._count))
        accepted = sum(
            receipt.status == "accepted"
            for receipt in self._producer.schedule_stream("burst", envelopes)
        )
        is_in_time = self._store.next().now_ms < due_ms
        taken_bytes = dataset_bytes(self._connection) - self._storage.before_bytes
        seen = self._drain(due_ms)
        stopped_in_s = self._stop_worker()
        bounds = [*time_bounds(read_times(self._client)), *self._touched_bounds()]
        left = self._storage.leftovers()
        bounds += [
            Bound("ready at once, most", seen.ready, READY_FULL),
            Bound(
                "memory left but the journal, % of what it took",
                round(100 * left.more_bytes / taken_bytes, 2),
                1,
            ),
            Bound("journal, MiB", round(left.journal_bytes / 2**20, 1), JOURNAL_MIB),
            Bound("exit by SIGTERM, s", round(stopped_in_s, 1), 10),
            Bound("memory that the burst took, MiB", round(taken_bytes / 2**20)),
            Bound("delivered a second", round(seen.per_s)),
        ]
        violations = self._arrivals(due_ms) | left.violations()
        return self._result(accepted, violations, bounds, is_in_time=is_in_time)

    def _touched_bounds(self) -> list[Bound]:
        touched = read_touched(self._touched)
        most_bytes = max(each.size_bytes for each in touched)
        return [
            Bound("ids of one call, most", max(each.ids for each in touched), MAX_BATCH),
            Bound("bytes of one call, most", most_bytes, MAX_BATCH_BYTES),
        ]

    def _lead_ms(self) -> int:
        size = self._count * self._body_bytes
        count_ms = 1000 * self._count // SCHEDULED_PER_S
        return SLOWER * (3000 + count_ms + 1000 * size // SCHEDULED_BYTES_PER_S)

    def _envelope(self, place: int, due_ms: int) -> Envelope:
        return Envelope.new(os.urandom(self._body_bytes), at=due_ms, id=_id(place))

    def _drain(self, due_ms: int) -> Most:
        """Wait until nothing is left; half-way, let the append-only file be written anew."""
        seen = Most()
        with meanwhile(lambda: seen.look(self._store), LOOK_EVERY_S):
            self._wait_for_less(self._count // 2)
            with suppress(redis.ResponseError):  # the server does so just now, by itself
                self._client.bgrewriteaof()
            self._wait_for_less(1)
            seen.per_s = 1000 * self._count / (self._store.next().now_ms - due_ms)
        return seen

    def _wait_for_less(self, count: int) -> None:
        def is_less() -> bool:
            return self._store.next().envelopes < count

        wait_until(is_less, f"fewer than {count} envelopes", DRAINED_WITHIN_S)

    def _stop_worker(self) -> float:
        began = time.monotonic()
        self._worker.terminate()
        self._worker.wait(30)
        return time.monotonic() - began

    def _arrivals(self, due_ms: int) -> dict[str, list[str]]:
        """Read the topic, and return what is wrong with what arrived."""
        copies: Counter[str] = Counter()
        early = []
        for record in chain.from_iterable(unread(self._kafka, self._topic, {})):
            message_id = dict(record.headers)["x-message-id"].decode()
            copies[message_id] += 1
            if record.timestamp < due_ms:
                early.append(message_id)
        lost = [each for each in map(_id, range(self._count)) if each not in copies]
        repeated = [each for each, count in copies.items() if count > 1]
        found = {"lost": lost, "duplicates": repeated, "early": early}
        return {kind: ids for kind, ids in found.items() if ids}

    def _result(
        self,
        accepted: int,
        violations: dict[str, list[str]],
        bounds: list[Bound],
        *,
        is_in_time: bool,
    ) -> Result:
        return Result(
            scenario="burst",
            broker="kafka",
            seed=self._seed,
            violations=violations,
            planned=1,
            effective=int(is_in_time),
            seen=["all in before they were due" if is_in_time else "some were scheduled too late"],
            accepted=accepted,
            delivered=self._count - len(violations.get("lost", [])),
            duplicates=len(violations.get("duplicates", [])),
            seconds=round(time.monotonic() - self._began, 1),
            bounds=bounds,
            size=f"{self._count:,} of {self._body_bytes:,} bytes",
        )

    def close(self) -> None:
        if self._worker.poll() is None:
            self._worker.kill()
            self._worker.wait()
        with closing(KafkaAdminClient(bootstrap_servers=self._kafka)) as admin:
            admin.delete_topics([self._topic])
        self._producer.close()
        self._storage.close()


def _id(place: int) -> str:
    return f"{place:07}"


def run_burst(kafka: str, home: Path, seed: str, count: int, body_bytes: int) -> Result:
    """Return what came of a burst of so many; the worker's log stays in `home`."""
    with redis_server(home, *OPTIONS) as port:
        burst = Burst(kafka, home, seed, count, body_bytes, port)
        try:
            return burst.run()
        finally:
            burst.close()


# ── how long script calls held the server up, by its slow log from 0.1 ms on ────────────────────
# What is quicker is left out: a script's own commands would be logged too, and that costs more than
# they do. So a percentile is of the slower calls, and never less than that of all. A fork pauses
# the server between two calls, so it is in no call's time.

Times = Mapping[str, Sequence[float]]  # of each script, ms


def read_times(client: Any) -> Times:
    """Return the times of each script that were logged."""
    by_sha = {script(name).sha.encode(): name for name in names()}
    times: dict[str, list[float]] = {}
    for entry in client.slowlog_get(-1):
        words = entry["command"].split(b" ", 2)
        if words[0] == b"EVALSHA":
            name = by_sha.get(words[1], "registry")
            times.setdefault(name, []).append(entry["duration"] / 1000)
    return times


def time_bounds(times: Times) -> list[Bound]:
    """Return p99.9 of each script, and what the slowest of all may take."""
    rows = [
        Bound(f"p99.9 of {name}, ms", share(found, 0.999), P999_MS)
        for name, found in sorted(times.items())
    ]
    every = [each for found in times.values() for each in found]
    slow = sum(each >= SLOW_MS for each in every)
    return [
        *rows,
        Bound("slowest call of all, ms", round(max(every), 2), MOST_MS),
        Bound(f"calls of {SLOW_MS:g} ms or more", slow, 0),
    ]


def share(millis: Sequence[float], part: float) -> float:
    return round(percentile(sorted(millis), part), 2)


def put_first(pid: int) -> None:
    """Let this server run before all else, if we may, as one with a core of its own would.

    Here it shares two cores with brokers, workers and a JVM: without it, most of the slowest calls
    are calls in whose middle the server stood by.
    """
    policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK  # what rewrites its file stays one of many
    with suppress(PermissionError):
        os.sched_setscheduler(pid, policy, os.sched_param(1))
