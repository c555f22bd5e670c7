"""Very many envelopes due in one instant: how long that holds the store up, and what it leaves.

A store of its own, whose append-only file is rewritten in the middle of it, a Kafka topic of its
own, and one worker as it is by default, which says how much each of its calls touched.
"""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import redis
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient

from duebridge.bench.meter import CallCounter, Meter
from duebridge.config.load import load_config
from duebridge.envelope import Envelope
from duebridge.producer import Producer
from duebridge.store.connection import open_connection
from duebridge.store.delay_store import MAX_BATCH, MAX_BATCH_BYTES, READY_FULL, DelayStore
from duebridge.store.routes import RouteStore
from tests.faults.judgement import leftovers, stored_bytes
from tests.faults.observed_worker import Touched, read_touched
from tests.faults.scenario import Bound, Result
from tests.faults.script_times import (
    TAKE_SLOW,
    Times,
    core_times_s,
    put_first,
    read_times,
    time_bounds,
)
from tests.support.checkout import ROOT
from tests.support.servers import redis_server, wait_until

BODY_BYTES, LARGE_BYTES = 200, 65_536
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


class Seen(msgspec.Struct, kw_only=True):
    """All that is judged of a burst."""

    times: Times = {}
    touched: Sequence[Touched] = ()
    most_ready: int = 0
    taken_bytes: int = 1
    kept_bytes: int = 0
    journal_bytes: int = 0
    forks: int = 0
    longest_fork_us: int = 0
    is_first: bool = False
    ran_s: float = 0.0
    waited_s: float = 0.0
    per_s: float = 0.0
    stopped_in_s: float = 0.0

    def bounds(self) -> list[Bound]:
        """Return each figure with its limit: the contract's, and R7, R8 and R9 of the goals."""
        most_ids = max(each.ids for each in self.touched)
        most_bytes = max(each.size_bytes for each in self.touched)
        kept = round(100 * self.kept_bytes / self.taken_bytes, 2)
        return [
            *time_bounds(self.times),
            Bound("ids of one call, most", most_ids, MAX_BATCH),
            Bound("bytes of one call, most", most_bytes, MAX_BATCH_BYTES),
            Bound("ready at once, most", self.most_ready, READY_FULL),
            Bound("memory left but the journal, % of what it took", kept, 1),
            Bound("journal, MiB", round(self.journal_bytes / 2**20, 1), JOURNAL_MIB),
            Bound("exit by SIGTERM, s", round(self.stopped_in_s, 1), 10),
            Bound("memory that the burst took, MiB", round(self.taken_bytes / 2**20)),
            Bound("pauses of the server for a fork", self.forks),
            Bound("longest of them, ms", round(self.longest_fork_us / 1000, 1)),
            Bound("server was put before all else (1: yes)", int(self.is_first)),
            Bound("server ran, s", round(self.ran_s, 1)),
            Bound("server stood by for want of a core, s", round(self.waited_s, 1)),
            Bound("delivered a second", round(self.per_s)),
        ]


class Watch(threading.Thread):
    """Notes the most that was ready, and the longest fork, until stopped."""

    def __init__(self, client: Any, store: DelayStore) -> None:
        super().__init__(name="watch", daemon=True)
        self._client, self._store = client, store
        self._stop_now = threading.Event()
        self.most_ready = self.longest_fork_us = 0

    def run(self) -> None:
        while not self._stop_now.wait(LOOK_EVERY_S):
            self.most_ready = max(self.most_ready, self._store.next().ready)
            fork_us = int(self._client.info("stats")["latest_fork_usec"])
            self.longest_fork_us = max(self.longest_fork_us, fork_us)

    def stop(self) -> None:
        self._stop_now.set()
        self.join()


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
        self._connection = open_connection(url)
        self._client: Any = self._connection.client
        self._server_pid = self._client.info("server")["process_id"]
        is_first = put_first(self._server_pid)
        self._producer = Producer.from_config(path)
        route = load_config(path).routes["burst"]
        self._store = RouteStore.open(self._connection, "burst", route).shards[0]
        self._touched = home / "touched.jsonl"
        self._meter = Meter(self._connection, CallCounter())
        self._create_topic()
        self._worker = self._start_worker(path)
        self._seen = Seen(is_first=is_first)

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
        before_bytes = stored_bytes(self._connection)
        due_ms = self._store.next().now_ms + self._lead_ms()
        envelopes = (self._envelope(place, due_ms) for place in range(self._count))
        accepted = sum(
            receipt.status == "accepted"
            for receipt in self._producer.schedule_stream("burst", envelopes)
        )
        is_in_time = self._store.next().now_ms < due_ms
        self._seen.taken_bytes = self._meter.dataset_bytes() - before_bytes
        self._drain(due_ms)
        self._stop_worker()
        self._seen.ran_s, self._seen.waited_s = core_times_s(self._server_pid)
        self._seen.times = read_times(self._client)
        self._seen.touched = read_touched(self._touched)
        left = leftovers(self._connection, self._store.shard, before_bytes)
        self._seen.kept_bytes, self._seen.journal_bytes = left.more_bytes, left.journal_bytes
        violations = self._arrivals(due_ms) | left.violations()
        return self._result(accepted, violations, is_in_time=is_in_time)

    def _lead_ms(self) -> int:
        size = self._count * self._body_bytes
        return 3000 + 1000 * self._count // SCHEDULED_PER_S + 1000 * size // SCHEDULED_BYTES_PER_S

    def _envelope(self, place: int, due_ms: int) -> Envelope:
        return Envelope.new(os.urandom(self._body_bytes), at=due_ms, id=_id(place))

    def _drain(self, due_ms: int) -> None:
        """Wait until nothing is left; half-way, let the append-only file be written anew."""
        watch = Watch(self._client, self._store)
        forks = self._info("total_forks")
        watch.start()
        self._wait_for_less(self._count // 2)
        with suppress(redis.ResponseError):  # the server does so just now, by itself
            self._client.bgrewriteaof()
        self._wait_for_less(1)
        seconds = (self._store.next().now_ms - due_ms) / 1000
        watch.stop()
        self._seen.most_ready, self._seen.longest_fork_us = watch.most_ready, watch.longest_fork_us
        self._seen.forks = self._info("total_forks") - forks
        self._seen.per_s = self._count / seconds

    def _wait_for_less(self, count: int) -> None:
        def is_less() -> bool:
            return self._store.next().envelopes < count

        wait_until(is_less, f"fewer than {count} envelopes", DRAINED_WITHIN_S)

    def _info(self, name: str) -> int:
        return int(self._client.info("stats")[name])

    def _stop_worker(self) -> None:
        began = time.monotonic()
        self._worker.terminate()
        self._worker.wait(30)
        self._seen.stopped_in_s = time.monotonic() - began

    def _arrivals(self, due_ms: int) -> dict[str, list[str]]:
        """Read the topic, and return what is wrong with what arrived."""
        copies: Counter[str] = Counter()
        early = []
        for record in self._records():
            message_id = dict(record.headers)["x-message-id"].decode()
            copies[message_id] += 1
            if record.timestamp < due_ms:
                early.append(message_id)
        lost = [each for each in map(_id, range(self._count)) if each not in copies]
        repeated = [each for each, count in copies.items() if count > 1]
        found = {"lost": lost, "duplicates": repeated, "early": early}
        return {kind: ids for kind, ids in found.items() if ids}

    def _records(self) -> Iterator[Any]:
        consumer = KafkaConsumer(bootstrap_servers=self._kafka, enable_auto_commit=False)
        with closing(consumer):
            places = [TopicPartition(self._topic, each) for each in range(PARTITIONS)]
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            ends = consumer.end_offsets(places)
            while any(consumer.position(each) < ends[each] for each in places):
                for records in consumer.poll(timeout_ms=1000).values():
                    yield from records

    def _result(
        self, accepted: int, violations: dict[str, list[str]], *, is_in_time: bool
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
            bounds=self._seen.bounds(),
            size=f"{self._count:,} of {self._body_bytes:,} bytes",
        )

    def close(self) -> None:
        if self._worker.poll() is None:
            self._worker.kill()
            self._worker.wait()
        with closing(KafkaAdminClient(bootstrap_servers=self._kafka)) as admin:
            admin.delete_topics([self._topic])
        self._producer.close()
        self._connection.close()


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
