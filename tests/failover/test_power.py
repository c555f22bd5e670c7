"""A power cut takes from a real server what it had not synced, and nothing else."""

import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
import redis

from tests.failover.power import PoweredNode, powered
from tests.support.servers import wait_until


class Writer(threading.Thread):
    """Writes a key a call until the server is gone, and counts the answers."""

    answered = 0

    def __init__(self, node: PoweredNode) -> None:
        super().__init__()
        self._node = node

    def run(self) -> None:
        with suppress(redis.RedisError), self._node.client() as client:
            for each in count():
                client.set(f"key-{each}", "x")
                self.answered += 1


@pytest.mark.parametrize("policy", ["always", "no"])
def test_cut_power_keeps_what_was_synced_and_loses_the_rest(tmp_path: Path, policy: str) -> None:
    with powered(tmp_path / "redis", "--appendfsync", policy) as node:
        writer = Writer(node)
        writer.start()
        wait_until(lambda: writer.answered >= 20, "answers")
        lost = node.cut_power()
        writer.join()
        node.start()
        found = node.ask("DBSIZE")
    if policy == "always":
        assert 0 <= found - writer.answered <= 1  # synced, and nobody was told
    else:
        assert (found, lost > 0) == (0, True)
