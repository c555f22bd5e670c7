"""What a reply may be: anything else is a store's error, never a defect later on."""

import pytest

from duebridge.errors import StoreError
from duebridge.store.replies import Reclaimed, read_reply

POLL = [0] * 15


def test_read_reply_with_a_count_below_zero_is_a_store_error() -> None:
    assert read_reply([POLL, 2, 1], Reclaimed).moved == 2
    with pytest.raises(StoreError, match="no script of ours"):
        read_reply([POLL, 2, -1], Reclaimed)
