"""Envelopes of a command's routes that are dead, and why."""

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from duebridge.admin.dead import list_dead
from duebridge.admin.operator import Operator
from duebridge.config.load import load_config
from duebridge.envelope import Envelope
from duebridge.ports.publisher import Reason
from duebridge.producer import Producer
from duebridge.store.routing import RouteStore
from duebridge.store.wire.transitions import Burial
from tests.support.command import Command, wait_until

LARGE, MISSING = Reason.TOO_LARGE, Reason.TARGET_MISSING


def ids_to(count: int) -> list[str]:
    return [f"id-{number:04d}" for number in range(count)]


def bury(duebridge: Command, ids: Iterable[str], route: str = "reminders", **fields: Any) -> None:
    """See to it that these are dead: those with `m` first of a missing target, else too large."""
    given = {"body": b"hello", **fields}
    body = given.pop("body")
    new = [Envelope.new(body, delay="0s", id=name, **given) for name in ids]
    config = load_config(duebridge.file)
    with closing(duebridge.connection()) as connection:
        Producer(config, connection).schedule_many(route, new)
        shards = RouteStore.open(connection, "duebridge", config.routes[route]).shards
        before = sum(shard.next().dead for shard in shards)

        def bury_some() -> bool:
            for shard in shards:
                shard.promote()
                claim = shard.claim(1000, 30_000)
                shard.bury(claim.token, [burial(each) for each in claim.ids])
            return sum(shard.next().dead for shard in shards) == before + len(new)

        wait_until(bury_some, "all to be dead")


def burial(envelope_id: str) -> Burial:
    reason = MISSING if envelope_id.startswith("m") else LARGE
    error = f"{reason.name.title()}\nWhy not"
    return Burial(id=envelope_id, reason=reason, is_failure=True, is_unsure=False, error=error)


def dead(operator: Operator, route: str = "reminders") -> list[str]:
    return [each.entry.id for each in list_dead(operator, route)]
