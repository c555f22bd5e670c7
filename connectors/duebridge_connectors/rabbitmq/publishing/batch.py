"""A batch in flight: its encoded messages and their outcomes.

The caller creates a batch and waits for it; meanwhile only the connection's thread changes it.
"""

import threading

from duebridge.ports.publisher import Outcome
from duebridge_connectors.rabbitmq.errors import AmbiguousReturn, unanswered


class PublishBatch:
    """Collects outcomes; finished when all are known or the caller stops waiting.

    `groups` are its messages by exchange, each group in order; a batch without any is a ping, with
    one outcome.
    """

    def __init__(self, size: int) -> None:
        self.groups: dict[str, list[PendingMessage]] = {}
        self.outcomes: list[Outcome | None] = [None] * size
        self.is_finished = False
        self._unsettled = size
        self._complete = threading.Event()

    def settle(self, index: int, outcome: Outcome) -> None:
        """Set the outcome at an index, unless it is already known."""
        if self.outcomes[index] is not None:
            return
        self.outcomes[index] = outcome
        self._unsettled -= 1
        if not self._unsettled:
            self.is_finished = True
            self._complete.set()

    def settle_rest(self, outcome: Outcome) -> None:
        """Set every unknown outcome."""
        for index in range(len(self.outcomes)):
            self.settle(index, outcome)

    def wait(self, seconds: float) -> bool:
        """Wait until every outcome is known; return False on timeout."""
        return self._complete.wait(seconds)

    def end(self, sent: Outcome, unsent: Outcome) -> list[Outcome]:
        """Finish the batch; return its outcomes, with `sent` or `unsent` for unknown ones."""
        self.is_finished = True
        messages = [message for group in self.groups.values() for message in group]
        sent_indexes = {message.index for message in messages if message.is_sent}
        return [
            outcome or (sent if index in sent_indexes else unsent)
            for index, outcome in enumerate(self.outcomes)
        ]


class PendingMessage:
    """One delivery of a batch, encoded except for the channel number."""

    __slots__ = (
        "batch",
        "body",
        "header",
        "id",
        "index",
        "is_risky",
        "is_sent",
        "method",
        "older",
        "returned",
        "routing_key",
    )

    def __init__(
        self,
        batch: PublishBatch,
        index: int,
        id_: str,
        routing_key: str,
        method: bytes,
        header: bytes,
        body: bytes,
        is_risky: bool,
    ) -> None:
        self.batch = batch
        self.index = index
        self.id = id_
        self.routing_key = routing_key
        self.method = method
        self.header = header
        self.body = body
        self.is_risky = is_risky
        self.is_sent = False
        self.older: PendingMessage | None = None  # same id, also in flight
        self.returned: Outcome | None = None  # the outcome of a basic.return

    @property
    def is_settled(self) -> bool:
        """Whether its outcome is known."""
        return self.batch.outcomes[self.index] is not None

    def settle(self, outcome: Outcome) -> None:
        """Set the outcome; an earlier basic.return takes precedence."""
        self.older = None
        self.batch.settle(self.index, self.returned or outcome)


class UnconfirmedMessages:
    """The unconfirmed messages of a channel by delivery tag, which RabbitMQ counts up from 1."""

    def __init__(self) -> None:
        self.by_tag: dict[int, PendingMessage] = {}
        self.next_tag = 1
        self._lowest = 1  # all below are confirmed
        self._newest: dict[str, PendingMessage] = {}  # by id

    def add(self, message: PendingMessage) -> None:
        """Count a message as published."""
        self.by_tag[self.next_tag] = message
        self.next_tag += 1
        older = self._newest.get(message.id)
        if older is not None:
            message.older = older
        self._newest[message.id] = message

    def take(self, tag: int, multiple: bool) -> list[PendingMessage]:
        """Remove and return the messages that an ack or nack settles."""
        if not multiple:
            tags = range(tag, tag + 1)
        else:
            tags = range(self._lowest, (tag or self.next_tag - 1) + 1)  # 0: all
            self._lowest = tags.stop
        taken = []
        for message_tag in tags:
            message = self.by_tag.pop(message_tag, None)
            if message is not None:
                taken.append(message)
                if self._newest.get(message.id) is message:
                    del self._newest[message.id]
        return taken

    def give_back(self, message_id: str, outcome: Outcome) -> None:
        """Record a basic.return; the ack that follows is no confirm.

        A basic.return carries only the id. If two messages with that id are in flight, both become
        INDETERMINATE.
        """
        message = self._newest.get(message_id)
        if message is None:
            return
        message.returned = outcome
        older = message.older
        while older is not None:
            if not older.is_settled:
                doubt = unanswered(AmbiguousReturn(outcome.error_message))
                message.returned = older.returned = doubt
            older = older.older

    def is_awaited(self) -> bool:
        """Return whether a caller still waits for any of these messages."""
        return any(not message.batch.is_finished for message in self.by_tag.values())
