"""Replicated durability as producers, commands and workers see it, over two replicas."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from duebridge.admin.operator import Operator
from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.errors import Indeterminate, StoreUnfit
from duebridge.producer import Producer
from duebridge.store.batching import SCHEDULE_ROWS
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection, open_connection
from duebridge.worker.reporting.probes import readiness_faults
from duebridge.worker.shard import ShardView
from tests.acceptance.site import impatient
from tests.acceptance.works import Works, started
from tests.support.command import Command, kill_due
from tests.support.redis.replicas import Replicas, replicated
from tests.support.servers import wait_until

BOTH = {"replicated": {"replicas": 2, "timeout": "500ms"}}
CONFIG = """\
version: 1
store: {{url: "{url}"}}
brokers: {{here: {{type: memory}}}}
defaults: {{durability: {{replicated: {{replicas: 2, timeout: 700ms}}}}}}
routes: {{reminders: {{target: {{broker: here, topic: t}}}}}}
"""


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicated(tmp_path_factory.mktemp("replicas"), "--appendonly", "yes") as running:
        yield running


@pytest.fixture
def command(tmp_path: Path, replicas: Replicas) -> Command:
    replicas.primary.ask("FLUSHALL")
    replicas.await_caught_up()
    return Command(tmp_path, replicas.url, CONFIG)


@pytest.fixture
def config(command: Command) -> Config:
    return load_config(command.file)


@pytest.fixture
def connection(command: Command) -> Iterator[Connection]:
    opened = open_connection(command.url)
    yield opened
    opened.close()


def test_schedule_that_replicas_did_not_confirm_names_only_the_ids_of_that_batch(
    replicas: Replicas, config: Config, connection: Connection
) -> None:
    producer = Producer(config, connection, repeat_for_s=1.0)  # the first batch is confirmed
    ids = [f"id{number}" for number in range(SCHEDULE_ROWS + 3)]
    receipts = producer.schedule_stream(
        "reminders", [Envelope.new(b"", id=i, delay="1h") for i in ids]
    )
    confirmed = [next(receipts) for _ in range(SCHEDULE_ROWS)]
    with replicas.frozen(), pytest.raises(Indeterminate) as refused:
        next(receipts)
    assert [*(each.id for each in confirmed), *refused.value.ids] == ids
    patient = Producer(config, connection)
    again = patient.schedule("reminders", b"", id=refused.value.ids[0], delay="1h")
    assert again.status == "duplicate"


@pytest.mark.parametrize(("call", "how"), [("cancel", {}), ("reschedule", {"delay": "2h"})])
def test_call_of_a_producer_that_replicas_did_not_confirm_names_its_id(
    replicas: Replicas, config: Config, connection: Connection, call: str, how: dict[str, str]
) -> None:
    Producer(config, connection).schedule("reminders", b"", id="a", delay="1h")
    producer = Producer(config, connection, repeat_for_s=0)
    with replicas.frozen(1), pytest.raises(Indeterminate, match="not confirmed: id 'a'"):
        getattr(producer, call)("reminders", "a", **how)


def test_send_that_replicas_did_not_confirm_ends_with_3_and_says_to_repeat_it(
    replicas: Replicas, command: Command
) -> None:
    words = ("send", "reminders", "x", "--delay", "1h", "--id", "a")
    with replicas.frozen():
        done = command(*words, **impatient(command.home))
    assert done.code == 3
    assert "0 of 2 replicas confirmed the write within 700ms" in done.err
    assert done.err.endswith("not confirmed: id 'a'; repeat the command with this id\n")
    assert command(*words).code == 0


def test_cancel_repeated_after_replicas_did_not_confirm_is_unknown_and_names_the_journal(
    replicas: Replicas, command: Command
) -> None:
    assert command("send", "reminders", "x", "--delay", "1h", "--id", "a").code == 0
    words = ("cancel", "reminders", "a")
    with replicas.frozen():
        assert command(*words, **impatient(command.home)).code == 3
    again = command(*words)
    assert (again.code, again.out.split()) == (1, ["unknown", "a"])
    told = "delivered, cancelled or never sent: see `duebridge events reminders`\n"
    assert again.err == f"duebridge: the store knows no envelope 'a': {told}"
    assert "cancelled" in command("events", "reminders").out


def test_doctor_with_fewer_replicas_than_a_route_waits_for_says_so(
    replicas: Replicas, tmp_path: Path
) -> None:
    waits = "a durability waits for 3 replicas, and 2 are connected"
    for wanted, is_said in (("replicas: 2", False), ("replicas: 3", True)):
        command = Command(tmp_path, replicas.url, CONFIG.replace("replicas: 2", wanted))
        assert (waits in command("doctor").out) is is_said


@pytest.mark.parametrize("call", ["replay", "drop"])
def test_operator_waits_as_the_route_does(
    replicas: Replicas, command: Command, config: Config, connection: Connection, call: str
) -> None:
    Producer(config, connection).schedule("reminders", b"", id="a", delay="0ms")
    kill_due(command, 1, "E\nno")
    operator = Operator(config, connection)
    with replicas.frozen(), pytest.raises(Indeterminate) as refused:
        getattr(operator, call)("reminders", ["a"])
    assert refused.value.ids == ("a",)


def test_purge_that_replicas_did_not_confirm_ends_with_3_and_is_repeated(
    replicas: Replicas, command: Command
) -> None:
    command("send", "reminders", "x", "--delay", "1h", "--id", "a")
    with replicas.frozen(1):
        done = command("store", "purge", "reminders", "--yes")
    assert (done.code, done.out) == (3, "")
    assert "1 of 2 replicas confirmed the write within 700ms" in done.err
    replicas.await_caught_up()  # the command waits once
    again = command("store", "purge", "reminders", "--yes")
    assert (again.code, again.out.split()[-1]) == (0, "purged")


def test_config_check_with_fewer_replicas_than_a_route_waits_for_ends_with_3(
    replicas: Replicas, tmp_path: Path
) -> None:
    command = Command(tmp_path, replicas.url, CONFIG.replace("replicas: 2", "replicas: 3"))
    done = command("config", "check", "--connect")
    assert done.code == 3
    assert "a durability waits for 3 replicas, and 2 are connected" in done.out


def claims(works: Works, view: ShardView) -> int:
    client: Any = works.connection.client
    return int(client.hget(view.store.shard.key("meta"), "claims") or 0)


def test_worker_publishes_nothing_that_replicas_did_not_confirm_and_goes_on_later(
    replicas: Replicas,
) -> None:
    works = Works(replicas.url, {"r": "a/t", "q": "b/t"}, durability=BOTH)
    works.producer.schedule("r", b"", id="first", delay="0ms")
    with started(works):
        works.await_arrivals(1)
        works.producer.schedule("r", b"", id="a", delay="300ms")
        (view,) = (each for each in works.runner.views() if each.route.name == "r")
        with replicas.frozen():
            wait_until(lambda: claims(works, view) >= 3, "claims that nobody confirms")
            assert works.arrived() == [("first", "t")]
        works.await_arrivals(2)
        wait_until(lambda: works.left() == 0, "the acks")
    assert works.arrived() == [("first", "t"), ("a", "t")]
    assert dict(works.publishers["a"].delivered[1].headers)["x-attempt"] != "1"


def test_worker_whose_claims_are_unconfirmed_is_not_ready_until_nothing_is_to_be_claimed(
    replicas: Replicas,
) -> None:
    works = Works(replicas.url, {"r": "a/t"}, durability=BOTH)
    (view,), seen = works.runner.views(), set()

    def has_claimed_more() -> bool:
        seen.add(view.is_up)
        return claims(works, view) >= 4

    works.producer.schedule("r", b"", id="a", delay="500ms")
    with replicas.frozen(), started(works):
        wait_until(lambda: view.is_unconfirmed, "a claim that nobody confirms")
        wait_until(has_claimed_more, "more of them")
        assert seen == {False}
        fault = "route r: too few replicas confirm what is claimed"
        assert fault in readiness_faults(works.runner.worker)
        RouteStore(works.connection, works.namespace, "r", 1).of("a").cancel("a")
        wait_until(lambda: view.is_up, "a shard without envelopes")


def test_start_with_fewer_replicas_than_a_route_waits_for_logs_it(replicas: Replicas) -> None:
    more = {"replicated": {"replicas": 3, "timeout": "500ms"}}
    with capture_logs() as logs:
        Works(replicas.url, {"r": "a/t"}, durability=more)
    (found,) = (each for each in logs if each["event"] == "replicas_missing")
    assert "a durability waits for 3 replicas, and 2 are connected" in found["fault"]


def test_swap_to_a_durability_that_the_server_lacks_is_refused(replicas: Replicas) -> None:
    works = Works(replicas.url, {"r": "a/t"})
    stricter = works.configured({"r": "a/t"}, durability="fsync")
    with started(works):
        with pytest.raises(StoreUnfit, match="fsync: expected appendonly yes and appendfsync"):
            works.runner.swap(stricter)
        assert works.runner.config is works.config
        assert works.runner.swap(works.configured({"r": "a/t"}, durability=BOTH)).changed == ["r"]
