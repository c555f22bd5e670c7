"""The operator's side of the store: what is dead is listed, replayed or dropped, by id."""

from collections.abc import Iterator

import pytest

from duebridge.admin.dead import list_dead
from duebridge.admin.operator import DeadSettlement, Operator
from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.errors import ConfigError
from duebridge.ports.publisher import Reason
from duebridge.producer import Producer
from duebridge.store.connection import Connection
from duebridge.store.routes import RouteStore
from duebridge.store.transitions import Burial
from tests.support.command import Command, embedded_command, wait_until


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with embedded_command(tmp_path_factory.mktemp("cli")) as started:
        yield started


@pytest.fixture
def config(command: Command) -> Config:
    return load_config(command.file)


@pytest.fixture
def connection(command: Command) -> Iterator[Connection]:
    opened = command.connection()
    opened.client.flushall()
    yield opened
    opened.close()


@pytest.fixture
def operator(config: Config, connection: Connection) -> Operator:
    return Operator(config, connection)


def bury(config: Config, connection: Connection, ids: list[str]) -> None:
    """Schedule envelopes on the three shards of `invoices` and see to it that all are dead."""
    Producer(config, connection).schedule_many(
        "invoices", (Envelope.new(b"x", delay="0s", id=each) for each in ids)
    )
    shards = RouteStore.open(connection, "duebridge", config.routes["invoices"]).shards

    def bury_some() -> bool:
        for shard in shards:
            shard.promote()
            claim = shard.claim(1000, 30_000)
            shard.bury(
                claim.token,
                [
                    Burial(
                        id=each,
                        reason=Reason.INVALID,
                        is_failure=True,
                        is_unsure=False,
                        error="A\nb",
                    )
                    for each in claim.ids
                ],
            )
        return sum(shard.next().dead for shard in shards) == len(ids)

    wait_until(bury_some, "all to be dead")


def test_dead_of_three_shards_yields_each_once_up_to_the_limit(
    operator: Operator, config: Config, connection: Connection
) -> None:
    ids = [f"id-{number}" for number in range(500)]
    bury(config, connection, ids)
    assert sorted(
        found.entry.id for found in list_dead(operator, "invoices", limit=1_000)
    ) == sorted(ids)
    assert len(list(list_dead(operator, "invoices", limit=7))) == 7


def test_replay_of_more_than_a_batch_answers_each_id_in_order(
    operator: Operator, config: Config, connection: Connection
) -> None:
    ids = [f"id-{number}" for number in range(4_000)]
    bury(config, connection, ids)
    settled = operator.replay("invoices", ["no-such", *ids, ids[0]])
    assert settled[0] == DeadSettlement("no-such", "invoices", "unknown")
    assert settled[1:] == [DeadSettlement(each, "invoices", "replayed") for each in ids]
    _, invoices = operator.stats()
    assert (invoices.pending, invoices.dead) == (4_000, 0)


def test_dead_of_a_route_that_left_the_configuration_is_still_listed(
    config: Config, connection: Connection
) -> None:
    bury(config, connection, ["a"])
    remaining = {"reminders": config.routes["reminders"]}
    later = Operator(config.model_copy(update={"routes": remaining}), connection)
    assert [found.entry.id for found in list_dead(later, "invoices", limit=10)] == ["a"]
    with pytest.raises(ConfigError, match="got 'nothing'"):
        list_dead(later, "nothing", limit=10)
