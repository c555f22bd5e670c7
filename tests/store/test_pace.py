"""A shared rate: windows are the server's, and no unit too many goes."""

import time

from duebridge.store.connection import Connection
from duebridge.store.pace import Pace
from tests.store.desk import Desk
from tests.store.servers import wait_until


def test_pace_grants_no_more_than_its_rate_to_all_together(
    connection: Connection, desk: Desk
) -> None:
    one, other = (Pace(connection, desk.shard.namespace, "run", 50) for _ in range(2))
    assert one.take(30).units == 30
    assert other.take(30).units == 20
    refused = one.take(30)
    assert refused.units == 0
    assert 0 < refused.wait_ms <= 1000


def test_pace_grants_again_when_its_window_is_over(connection: Connection, desk: Desk) -> None:
    pace = Pace(connection, desk.shard.namespace, "run", 1000)
    assert pace.take(100).units == 100
    began = time.monotonic()
    wait_until(lambda: pace.take(100).units == 100, "the next window", within_s=5.0)
    assert time.monotonic() - began < 5.0


def test_pace_of_another_name_is_another_rate(connection: Connection, desk: Desk) -> None:
    assert Pace(connection, desk.shard.namespace, "one", 10).take(10).units == 10
    assert Pace(connection, desk.shard.namespace, "two", 10).take(10).units == 10
