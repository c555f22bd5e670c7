"""A snapshot is brought back beside a log that the broker keeps: a stream, a Kafka topic.

The intake reads the log again before the journal is heeded, else it would bring back what was
cancelled (docs/day-two.md). The group's offsets do not go back with the store.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

import pika
import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.acceptance.site import CONFIG, Site
from tests.support.command import wait_until
from tests.support.servers import AT_ONCE, back_up, redis_server, restored

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]
HOUR = "3600000"
INTAKES = """\
intakes:
  i:
    source: {{broker: log, {source}}}
    route: orders
    dead_letter: {{broker: here, topic: dead}}
"""


class Log(NamedTuple):
    """A stream or a topic: as a file has it, how a program writes to it, and how it is set back."""

    broker: str
    source: str
    put: Callable[[bytes], object]
    set_back: Callable[[], object]


@pytest.fixture
def stream(rabbitmq_url: str) -> Iterator[Log]:
    name = f"restore-{token_hex(4)}"
    delayed = pika.BasicProperties(delivery_mode=2, headers={"x-delay": int(HOUR)})
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        yield Log(
            f'{{type: rabbitmq, url: "{rabbitmq_url}"}}',
            f"queue: {name}",
            put=lambda body: channel.basic_publish("", name, body, delayed),
            set_back=lambda: None,  # its offset is in the snapshot
        )
        channel.queue_delete(name)


@pytest.fixture
def topic(kafka_bootstrap: str) -> Iterator[Log]:
    name = f"restore-{token_hex(4)}"
    delayed = [("x-delay", HOUR.encode())]
    with (
        closing(KafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin,
        closing(KafkaProducer(bootstrap_servers=kafka_bootstrap)) as producer,
    ):
        admin.create_topics([NewTopic(name, 1, 1)])
        yield Log(
            f'{{type: kafka, bootstrap_servers: ["{kafka_bootstrap}"]}}',
            f"topic: {name}, group: {name}",
            put=lambda body: producer.send(name, body, headers=delayed).get(30),
            set_back=lambda: to_earliest(kafka_bootstrap, name),
        )
        admin.delete_topics([name])


def to_earliest(bootstrap: str, name: str) -> None:
    """As kafka-consumer-groups.sh does: without the metadata that duebridge commits."""
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, group_id=name)) as consumer:
        consumer.commit({TopicPartition(name, 0): OffsetAndMetadata(0, "", -1)})


def site_on(port: int, home: Path, log: Log) -> Site:
    config = CONFIG.format(url=f"redis://127.0.0.1:{port}/0")
    brokers = f"brokers: {{log: {log.broker}, here: "
    return Site(
        home, config.replace("brokers: {here: ", brokers) + INTAKES.format(source=log.source)
    )


def take_in(site: Site, count: int) -> dict[str, str]:
    """Run the intake alone until so many wait; returns their ids by body."""
    with site.running("--only", "intake:i") as intake:
        wait_until(lambda: site.states("orders")["pending"] == count, f"{count} to be taken in")
        assert intake.end() == 0
    lines = site("ls", "orders", "--body", "--output", "json").json_lines()
    return {line["body"]: line["id"] for line in lines}


def lose_a_store(home: Path, log: Log) -> list[str]:
    """Back a store up, and return the journal until it was lost."""
    (home / "lost").mkdir()
    with redis_server(home / "lost", "--appendonly", "yes", *AT_ONCE) as port:
        site = site_on(port, home, log)
        log.put(b"before")
        take_in(site, 1)
        back_up(port, home / "backup.rdb")
        for body in (b"cancelled", b"delivered", b"kept"):
            log.put(body)
        ids = take_in(site, 4)
        assert site("cancel", "orders", ids["cancelled"]).code == 0
        assert site("deliver-now", "orders", ids["delivered"]).code == 0
        with site.running() as worker:
            wait_until(lambda: site.delivered() == [ids["delivered"]], "a delivery")
            assert worker.end() == 0
        return site("events", "--output", "json").out.splitlines()


@pytest.mark.parametrize("kind", ["stream", "topic"])
def test_restore_whose_intake_reads_first_brings_back_nothing_that_ended_and_loses_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    log = request.getfixturevalue(kind)
    journal = lose_a_store(tmp_path, log)
    with restored(tmp_path / "backup.rdb", tmp_path / "restored") as port:
        site = site_on(port, tmp_path, log)
        newest = site("events", "--limit", "1").out.split()[0]
        log.set_back()
        ids = take_in(site, 4)
        words = ("cancel", "orders", "-", "--ended-since", newest)
        done = site(*words, stdin="\n".join(journal).encode())
        assert sorted(done.out.split()[1::2]) == sorted([ids["cancelled"], ids["delivered"]])
        assert set(take_in(site, 2)) == {"before", "kept"}
