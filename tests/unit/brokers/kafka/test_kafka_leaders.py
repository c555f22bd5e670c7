"""Which records a publish keeps back since their partition has no leader."""

import threading
from collections.abc import Mapping, Sequence

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Verdict
from duebridge_connectors.kafka.attempt import UNANSWERED, AttemptError, Deadline, PublishAttempt
from duebridge_connectors.kafka.errors import RequestFailed
from duebridge_connectors.kafka.leaders import Leaders

TOPIC = "t"
LED, LEADERLESS = b"k3", b"k1"  # of partitions 0 and 1 of two, by murmur2
BOTH, FIRST, NONE = [(0, 1), (1, 2)], [(0, 1), (1, -1)], [(0, -1), (1, -1)]
WITHOUT_PART, WITHOUT_ANY = Verdict.PART_UNAVAILABLE, Verdict.TARGET_UNAVAILABLE


class Client:
    """A client of one topic; those in `open_keys` get no answer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.turn = threading.Lock()
        self.leaders = Leaders(lambda: self.now)
        self.found = BOTH
        self.looked = 0
        self.is_reachable = True
        self.is_known = True
        self.open_keys: set[bytes | None] = set()
        self.sent: list[bytes | None] = []

    def knows(self, topic: str) -> bool:
        return self.is_known


class Attempt(PublishAttempt[Client]):
    def _look_up(
        self, client: Client, topics: list[str], within_s: float
    ) -> Mapping[str, AttemptError | None]:
        client.looked += 1
        if not client.is_reachable:
            raise RequestFailed("nobody there")
        for topic in topics:
            client.leaders.note(topic, client.found)
        return dict.fromkeys(topics)

    def _send(self, client: Client, indexes: Sequence[int]) -> None:
        for index in indexes:
            key = self.batch[index].key
            client.sent.append(key)
            self.record([index], UNANSWERED if key in client.open_keys else CONFIRMED)

    def _wait(self) -> None: ...


@pytest.fixture
def client() -> Client:
    return Client()


def publish(client: Client, *keys: bytes | None) -> list[Outcome]:
    batch = [Delivery(str(n), Target("k", topic=TOPIC), b"", key) for n, key in enumerate(keys)]
    attempt = Attempt(batch, Deadline(5))
    attempt.send(client, range(len(batch)))
    return attempt.outcomes


def lose_leader(client: Client, found: list[tuple[int, int]]) -> None:
    """Let a record go unanswered, since the leader is lost."""
    client.open_keys = {LEADERLESS}
    assert publish(client, LEADERLESS)[0].verdict is Verdict.INDETERMINATE
    client.found = found


def test_publish_after_a_missing_answer_sends_nothing_to_a_partition_without_a_leader(
    client: Client,
) -> None:
    lose_leader(client, FIRST)
    client.sent.clear()
    found = publish(client, LEADERLESS, LED, None, LEADERLESS)
    assert client.sent == [LED, None]
    assert [(each.verdict, each.part) for each in found] == [
        (WITHOUT_PART, 1), (Verdict.CONFIRMED, -1), (Verdict.CONFIRMED, -1), (WITHOUT_PART, 1),
    ]  # fmt: skip
    assert not any(each.may_be_published for each in found)


def test_publish_to_a_new_topic_without_a_leader_sends_nothing_there(client: Client) -> None:
    client.is_known, client.found = False, FIRST
    assert [each.verdict for each in publish(client, LEADERLESS, LED)] == [
        WITHOUT_PART,
        Verdict.CONFIRMED,
    ]
    assert client.sent == [LED]


def test_publish_to_a_topic_without_any_leader_finds_the_whole_target_away(client: Client) -> None:
    lose_leader(client, NONE)
    client.sent.clear()
    assert {each.verdict for each in publish(client, LED, LEADERLESS, None)} == {WITHOUT_ANY}
    assert client.sent == []


def test_publish_looks_for_a_leader_once_a_second_and_sends_once_there_is_one(
    client: Client,
) -> None:
    lose_leader(client, FIRST)
    looked = client.looked
    for _ in range(3):
        publish(client, LEADERLESS)
    assert client.looked == looked + 1
    client.found, client.open_keys = BOTH, set()
    client.now += 1
    assert publish(client, LEADERLESS) == [CONFIRMED]
    looked = client.looked
    client.now += 60
    publish(client, LEADERLESS, LED)
    assert client.looked == looked, "a topic whose leaders are known costs no request"


def test_publish_sends_as_before_if_nobody_says_who_leads(client: Client) -> None:
    lose_leader(client, FIRST)
    client.is_reachable, client.open_keys = False, set()
    assert publish(client, LEADERLESS, LED) == [CONFIRMED, CONFIRMED]
