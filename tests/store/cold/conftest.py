"""A desk of a route with a cold tier, from which rows may go cold."""

import pytest

from tests.store.cold.cold_desk import begin
from tests.store.conftest import Opened
from tests.support.desk import YEAR_MS, Desk


@pytest.fixture
def desk(open_desk: Opened) -> Desk:
    desk = open_desk(cold_tier_ms=YEAR_MS)
    begin(desk)
    return desk
