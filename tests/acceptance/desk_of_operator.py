"""A store with two routes as an operator reads it, and the worker's part done by hand."""

import secrets
from typing import Any

from duebridge.admin.operator import Operator
from duebridge.envelope import Envelope
from duebridge.producer import Producer
from duebridge.store.delay_store import DelayStore
from duebridge.store.server.connection import Connection
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import Ack
from tests.acceptance.site import memory_config
from tests.support.desk import burial, retrying
from tests.support.servers import wait_until

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
ORDERS, REMINDERS = "orders", "reminders"
ROUTES: dict[str, Any] = {
    ORDERS: {"target": {"broker": "memory", "topic": "orders"}, "shards": 3},
    REMINDERS: {"target": {"broker": "memory", "topic": "reminders"}},
}


class OperatorsDesk:
    """Envelopes of a namespace of its own, on the server's clock."""

    def __init__(self, connection: Connection, routes: dict[str, Any] | None = None) -> None:
        self.connection = connection
        self.namespace = f"test-{secrets.token_hex(6)}"
        store = {"namespace": self.namespace}
        self.config = memory_config(ROUTES if routes is None else routes, store=store)
        self.operator = Operator(self.config, connection)
        self.producer = Producer(self.config, connection)
        self.now_ms = self.operator.now_ms()

    def send(self, route: str, *given: Envelope) -> None:
        self.producer.schedule_many(route, given)

    def pending(self, route: str, dues_ms: dict[str, int], **fields: Any) -> None:
        """Schedule ids at so many ms from now."""
        at = {name: self.now_ms + ms for name, ms in dues_ms.items()}
        self.send(route, *[Envelope.new(b"x", id=name, at=at[name], **fields) for name in at])

    def stores(self, route: str) -> list[DelayStore]:
        return self.operator.stores(route)

    def claim(self, route: str, *ids: str, body: bytes = b"x") -> list[tuple[DelayStore, Claim]]:
        """Lease envelopes that are due now."""
        self.send(route, *[Envelope.new(body, id=name, delay="0s") for name in ids])
        claims: list[tuple[DelayStore, Claim]] = []

        def is_all_leased() -> bool:
            for store in self.stores(route):
                claim = store.claim(1000, 30_000, promote=1000)
                claims.extend([(store, claim)] if claim.leased else [])
            return sum(len(claim.leased) for _, claim in claims) == len(ids)

        wait_until(is_all_leased, "all to be leased")
        return claims

    def retry(self, route: str, *ids: str, delay_ms: int = HOUR_MS, **how: Any) -> None:
        for store, claim in self.claim(route, *ids):
            store.retry(
                claim.token, [retrying(each, delay_ms=delay_ms, **how) for each in claim.ids]
            )

    def dead(self, route: str, *ids: str, body: bytes = b"x") -> None:
        for store, claim in self.claim(route, *ids, body=body):
            store.bury(claim.token, [burial(each, error="E\nno") for each in claim.ids])

    def break_after(self, script: str, route: str) -> None:
        """Let every shard of a route fail as soon as a script has run once."""

        def observe(called: str, _: float) -> None:
            if called == script:
                for store in self.stores(route):
                    break_shard(self.connection, store)

        self.connection.observe = observe

    def deliver(self, route: str, *ids: str) -> None:
        for store, claim in self.claim(route, *ids):
            store.ack([Ack(each, claim.token) for each in claim.ids])


def break_shard(connection: Connection, store: DelayStore, key: str = "flight") -> None:
    """Let the scripts of a shard fail: one of its keys is of another type."""
    connection.client.delete(store.shard.key(key))
    connection.client.set(store.shard.key(key), "broken")
