"""The positions of an intake in a log that keeps none itself: they only go forward."""

import pytest

from duebridge.errors import ConfigError, StoreError, StoreUnavailable
from duebridge.ports.source import Positions
from duebridge.store.keys import intake_key
from duebridge.store.positions import StorePositions
from duebridge.store.server.connection import Connection, open_connection
from tests.support.servers import free_port


@pytest.fixture
def positions(connection: Connection, namespace: str) -> Positions:
    return StorePositions(connection, namespace, "orders")


def test_read_returns_what_was_written_last(positions: Positions) -> None:
    assert positions.read("stream") is None
    positions.write("stream", 0)
    assert positions.read("stream") == 0
    positions.write("stream", 2**53)
    assert (positions.read("stream"), positions.read("another")) == (2**53, None)


def test_write_of_a_lower_offset_changes_nothing(positions: Positions) -> None:
    """A second process of the intake, or a repeated call, must not take the position back."""
    for offset in (9, 10, 9, 0):
        positions.write("stream", offset)
    assert positions.read("stream") == 10


def test_positions_are_those_of_one_intake(
    connection: Connection, namespace: str, positions: Positions
) -> None:
    other = StorePositions(connection, namespace, "other")
    positions.write("stream", 5)
    other.write("stream", 7)
    assert (positions.read("stream"), other.read("stream")) == (5, 7)


def test_read_of_a_damaged_position_is_refused(
    connection: Connection, namespace: str, positions: Positions
) -> None:
    connection.client.hset(intake_key(namespace, "orders"), "stream", "-x")
    with pytest.raises(StoreError, match="stream: expected an offset"):
        positions.read("stream")


@pytest.mark.parametrize("name", ["", "a:b", "{x}"])
def test_name_that_no_key_may_have_is_refused(connection: Connection, name: str) -> None:
    with pytest.raises(ConfigError, match="intake"):
        StorePositions(connection, "n", name)


def test_positions_of_a_store_that_is_away_are_unavailable() -> None:
    away = open_connection(f"redis://127.0.0.1:{free_port()}/0")
    positions = StorePositions(away, "n", "orders")
    for ask in (lambda: positions.read("a"), lambda: positions.write("a", 1)):
        with pytest.raises(StoreUnavailable):
            ask()
    away.close()
