"""A store as an operator reads it."""

import pytest

from duebridge.store.server.connection import Connection
from tests.acceptance.desk_of_operator import OperatorsDesk


@pytest.fixture
def desk(connection: Connection) -> OperatorsDesk:
    return OperatorsDesk(connection)
