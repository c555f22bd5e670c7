"""A connection that its user drives step by step, and whose messages go into an inbox.

No thread is between the socket and the intake: nothing is read before it is wanted, so a producer
that is faster than the store fills no memory here.
"""

from typing import Any, Final

from pika import frame
from pika.adapters.select_connection import IOLoop, PollEvents, SelectConnection

from duebridge_connectors.rabbitmq.source.inbox import Inbox

RECEIVE_BYTES: Final = 64 * 1024  # of one call; pika asks for 4 KiB


class StepLoop(IOLoop):  # type: ignore[misc]
    """An event loop that runs in `step` only, and can leave the socket unread."""

    def __init__(self) -> None:
        self._most_wait_s = 0.0
        self._events: dict[int, int] = {}
        self._is_paused = False
        super().__init__()
        self.activate_poller()

    def step(self, wait_s: float) -> None:
        """Do what can be done now; where that is nothing, wait for it."""
        self._most_wait_s = wait_s
        self.poll()
        self.process_timeouts()

    def pause_reading(self, is_paused: bool) -> None:
        """Read nothing until the next call; writing and timers go on."""
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            for descriptor, events in self._events.items():
                super().update_handler(descriptor, self._watched(events))

    def wake(self) -> None:
        """End a step that waits; for any thread."""
        self.add_callback_threadsafe(lambda: None)

    def _watched(self, events: int) -> int:
        return (events & ~PollEvents.READ) | PollEvents.ERROR if self._is_paused else events

    def _get_remaining_interval(self) -> float:
        own_s = super()._get_remaining_interval()
        return self._most_wait_s if own_s is None else min(own_s, self._most_wait_s)

    def add_handler(self, fd: int, handler: Any, events: int) -> None:
        """Watch a descriptor."""
        self._events[fd] = events
        super().add_handler(fd, handler, self._watched(events))

    def update_handler(self, fd: int, events: int) -> None:
        """Watch it for other events."""
        self._events[fd] = events
        super().update_handler(fd, self._watched(events))

    def remove_handler(self, fd: int) -> None:
        """Watch it no more."""
        self._events.pop(fd, None)
        super().remove_handler(fd)


class SourceConnection(SelectConnection):  # type: ignore[misc]
    """A connection of pika; the messages of one channel bypass it and go into `inbox`."""

    inbox: Inbox | None = None
    _frame_buffer: bytes

    def read_in_large_pieces(self) -> None:
        """Ask the socket for more at once than pika does; only once it is open."""
        self._transport._MAX_RECV_BYTES = RECEIVE_BYTES

    def note_alive(self) -> None:
        """Let the unread connection not look dead to the heartbeat's check."""
        self.bytes_received += 1

    @property
    def has_unsent(self) -> bool:
        """Whether something waits to be written."""
        return self._transport is not None and self._get_write_buffer_size() > 0

    def _on_data_available(self, data_in: bytes) -> None:
        if self.inbox is None:
            super()._on_data_available(data_in)
            return
        self.bytes_received += len(data_in)
        data = self._frame_buffer + data_in if self._frame_buffer else data_in
        self._frame_buffer = b""
        self._frame_buffer = self.inbox.feed(data, self._process_other)

    def _process_other(self, data: bytes) -> None:
        _, value = frame.decode_frame(data)
        self._process_frame(value)
