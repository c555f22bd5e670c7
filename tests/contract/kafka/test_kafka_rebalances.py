"""Members of one group that come, are killed or freeze: nothing is lost, with both clients."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from duebridge.ports.source import Arrival
from tests.support.checkout import ROOT
from tests.support.contract.source_under_test import bodies, gathered, received, settled
from tests.support.kafka.kafka_sources import KafkaSources, open_member
from tests.support.servers import wait_until

PARTS = 4
WITHIN_S = 60


class Group:
    """A topic, its members as processes, and what each of them kept."""

    def __init__(self, broker: KafkaSources, home: Path) -> None:
        self.broker, self.home = broker, home
        self.topic = broker.create(PARTS)
        self.sent = 0
        self.members: list[subprocess.Popen[bytes]] = []

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self.broker.put(self.topic, b"%d" % number, partition=number % PARTS)
        self.sent += count
        self.broker.flush()

    def join(self, freeze_at: int = 0) -> int:
        """Start a member, and return its number."""
        number = len(self.members)
        program = [sys.executable, "-m", "tests.support.kafka.kafka_member"]
        given = [self.broker.bootstrap, self.broker.client, self.topic, str(self._file(number))]
        with (self.home / "errors").open("ab") as errors:
            command = [*program, *given, str(freeze_at)]
            self.members.append(subprocess.Popen(command, cwd=ROOT, stderr=errors))
        return number

    def kept(self, number: int) -> list[list[str]]:
        """Return bodies and ids, without a line that a kill cut off."""
        with suppress(FileNotFoundError):
            lines = self._file(number).read_text().rpartition("\n")[0].splitlines()
            return [line.split() for line in lines]
        return []

    def all_kept(self) -> list[list[str]]:
        return [each for number in range(len(self.members)) for each in self.kept(number)]

    def waits_for_all(self) -> None:
        def has_all() -> bool:
            return {body for body, _ in self.all_kept()} >= {str(n) for n in range(self.sent)}

        wait_until(has_all, Lazy(lambda: f"{self.sent} messages, {len(self.all_kept())} kept"), 60)

    def close(self) -> None:
        for member in self.members:
            member.kill()
            member.wait()

    def _file(self, number: int) -> Path:
        return self.home / f"kept-{number}"


class Lazy:
    """Says what it is only when asked."""

    def __init__(self, say: Callable[[], str]) -> None:
        self._say = say

    def __str__(self) -> str:
        return self._say()


@pytest.fixture
def group(broker: KafkaSources, tmp_path: Path) -> Iterator[Group]:
    with closing(Group(broker, tmp_path)) as group:
        yield group


def ids_differ(kept: list[list[str]]) -> bool:
    """Whether a message came under two ids."""
    return len({body for body, _ in kept}) != len({id_ for _, id_ in kept})


@pytest.mark.long
def test_member_killed_with_a_batch_in_hand_loses_nothing(group: Group) -> None:
    first = group.join()
    group.send(1000)
    wait_until(lambda: group.kept(first), "the first member's batch", WITHIN_S)
    group.join()  # a rebalance begins
    group.send(1000)
    group.members[first].kill()
    group.join()
    group.send(1000)
    group.waits_for_all()
    assert not ids_differ(group.all_kept())


@pytest.mark.long
def test_frozen_member_commits_nothing_late_and_loses_nothing(group: Group) -> None:
    group.send(400)
    frozen = group.join(freeze_at=3)
    wait_until(lambda: is_stopped(group.members[frozen].pid), "the member to freeze", WITHIN_S)
    group.join()
    group.send(400)
    group.waits_for_all()  # beyond its session: the other has its partitions
    wait_until(lambda: committed(group) == group.sent, "the other's commits", WITHIN_S)
    os.kill(group.members[frozen].pid, signal.SIGCONT)
    before = len(group.kept(frozen))
    said = group.home / "errors"
    wait_until(lambda: "commit refused" in said.read_text(), "the late commit's refusal", WITHIN_S)
    assert committed(group) == group.sent

    def takes_part() -> bool:
        group.send(PARTS)
        return len(group.kept(frozen)) > before

    wait_until(takes_part, "the member to take part again", WITHIN_S)
    group.waits_for_all()
    wait_until(lambda: committed(group) == group.sent, "the commits of all", WITHIN_S)
    assert not ids_differ(group.all_kept())


def test_cooperative_rebalance_takes_nothing_twice_and_skips_nothing(
    broker: KafkaSources,
) -> None:
    """Both are patient: a session that ends, on a busy machine, is no such rebalance."""
    topic = broker.create(PARTS)
    with closing(broker.open(topic, batch=20)) as one:
        for number in range(400):
            broker.put(topic, b"%d" % number, partition=number % PARTS)
        broker.flush()
        found = bodies(settled(one, 100))
        with closing(broker.open(topic, batch=20)) as two:
            by_two: list[bytes | None] = []
            give_up_at = time.monotonic() + WITHIN_S
            while len(set(found + by_two)) < 400 or not by_two:
                assert time.monotonic() < give_up_at, (len(found), len(by_two))
                for source, into in ((one, found), (two, by_two)):
                    batch = source.receive(0.05)
                    source.settle(batch)
                    into += bodies(batch)
                broker.send(topic, [b"more"])
    numbers = [each for each in found + by_two if each != b"more"]
    assert sorted(map(int, filter(None, numbers))) == list(range(400))


def test_message_whose_partition_another_member_gets_is_owned_no_longer(
    broker: KafkaSources,
) -> None:
    topic = broker.create(2)
    for number in range(2):
        broker.put(topic, b"%d" % number, partition=number)
    broker.flush()
    with closing(broker.open(topic)) as one:
        batch = gathered(one, 2)
        assert all(map(one.owns, batch))
        with closing(broker.open(topic)) as two:
            moved: list[Arrival] = []

            def has_moved() -> bool:
                one.keep_alive()
                moved.extend(two.receive(0.05))
                return bool(moved)

            wait_until(has_moved, "the other member's partition", WITHIN_S)
            assert [each.id for each in batch if not one.owns(each)] == [each.id for each in moved]


def test_partition_taken_away_with_a_batch_in_hand_is_not_committed(
    broker: KafkaSources,
) -> None:
    topic = broker.create(1)
    broker.send(topic, [b"%d" % number for number in range(40)])
    with closing(open_member(broker.bootstrap, broker.client, topic)) as one:
        batch = received(one)
        one._drop()  # type: ignore[attr-defined] # as after a lost connection
        with closing(open_member(broker.bootstrap, broker.client, topic)) as two:
            again = received(two)
            assert again[0].id == batch[0].id
            two.settle(again)
            settled(two, 40 - len(again))
            one.settle(batch)  # late
    with closing(open_member(broker.bootstrap, broker.client, topic)) as three:
        broker.send(topic, [b"last"])
        assert bodies(received(three)) == [b"last"]


def test_member_that_only_stays_alive_ends_a_rebalance_and_commits(kafka_bootstrap: str) -> None:
    """Polls that wait for nothing: kafka-python alone could forget the join that they began."""
    with closing(KafkaSources(kafka_bootstrap, "kafka-python")) as broker:
        topic = broker.create(1)
        broker.send(topic, [b"1"])
        with closing(open_member(kafka_bootstrap, broker.client, topic)) as member:
            source: Any = member
            batch = received(source)
            joined = source._consumer._consumer._coordinator
            generation = joined._generation.generation_id
            grow(broker, topic, source)

            def is_in_another_generation() -> bool:
                source.keep_alive()
                return bool(joined._generation.generation_id > generation)

            wait_until(is_in_another_generation, "the rebalance", WITHIN_S)

            def has_committed() -> bool:
                source.keep_alive()
                source.settle(batch)
                return not source._owed

            wait_until(has_committed, "the commit", WITHIN_S)


def test_partition_that_is_added_while_a_batch_waits_is_read(kafka_bootstrap: str) -> None:
    with closing(KafkaSources(kafka_bootstrap, "kafka-python")) as broker:
        topic = broker.create(1)
        broker.send(topic, [b"first"])
        with closing(open_member(kafka_bootstrap, "kafka-python", topic)) as source:
            batch = received(source)
            grow(broker, topic, source)
            source.keep_alive()  # it begins to join, and does not wait for the answer
            consumer: Any = source._consumer  # type: ignore[attr-defined]
            joined = consumer._consumer._coordinator._join_task
            wait_until(lambda: joined.is_done, "the group's answer", WITHIN_S)
            source.settle(batch)
            with closing(KafkaSources(kafka_bootstrap, "kafka-python")) as knowing:
                knowing.put(topic, b"second", partition=1)
                knowing.flush()
            assert bodies(received(source)) == [b"second"]


def grow(broker: KafkaSources, topic: str, source: Any) -> None:
    """Add a partition, and let the member know at once, not after five minutes."""
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_partitions({topic: 2})
    cluster = source._consumer._manager.cluster

    def knows() -> bool:
        cluster.request_update()
        return cluster.partitions_for_topic(topic) == {0, 1}

    wait_until(knows, "the added partition", WITHIN_S)


def committed(group: Group) -> int:
    """Return how many messages the group's commits cover."""
    with closing(KafkaAdminClient(bootstrap_servers=group.broker.bootstrap)) as admin:
        name = f"group-of-{group.topic}"
        found: Any = admin.list_group_offsets({name: None})
    return sum(each.offset for each in found[name].values())


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_two_topics_of_one_group_each_come_whole(broker: KafkaSources) -> None:
    topics = [broker.create(PARTS), broker.create(PARTS)]
    for number in range(200):
        for topic in topics:
            broker.put(topic, f"{topic} {number}".encode(), partition=number % PARTS)
    broker.flush()
    found: dict[str, list[str]] = {topic: [] for topic in topics}
    with ExitStack() as stack:
        members = {
            topic: stack.enter_context(closing(broker.open(topic, group=topics[0])))
            for topic in topics
        }
        give_up_at = time.monotonic() + WITHIN_S
        while min(map(len, found.values())) < 200:
            assert time.monotonic() < give_up_at, {topic: len(found[topic]) for topic in topics}
            for topic, member in members.items():
                batch = member.receive(0.2)
                member.settle(batch)
                found[topic] += [(each.body or b"").decode() for each in batch]
    for topic in topics:
        assert sorted(found[topic]) == sorted(f"{topic} {number}" for number in range(200))
