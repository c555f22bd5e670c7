"""The prefetch of a source: as many messages as fit into a limit of bytes.

RabbitMQ has no limit in bytes (`prefetch_size`). What it has sent and nobody reads, it gives up
after 15 seconds with the connection: what is sent ahead has to fit.
"""

from typing import Final

UNKNOWN_BYTES: Final = 64 * 1024  # of a message, before the first one
LEAST_BYTES: Final = 256


class Prefetch:
    """Begins small, shrinks at once and grows by doubling."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._size = UNKNOWN_BYTES
        self.count = self._fitting()

    def follow(self, largest: int, waiting: int) -> bool:
        """Take in the largest message of a batch; return whether `count` has changed.

        It grows only while the broker has sent all that it may: messages on their way to a
        cancelled consumer are sent later by a quorum queue, out of order.
        """
        self._size = max(largest, LEAST_BYTES, self._size * 7 // 8)
        wanted = self._fitting()
        is_full = waiting >= self.count
        if wanted >= self.count and not (is_full and wanted >= min(2 * self.count, self._most)):
            return False
        has_changed = wanted != self.count
        self.count = wanted
        return has_changed

    def _fitting(self) -> int:
        return max(1, min(self._most, self._most_bytes // self._size))
