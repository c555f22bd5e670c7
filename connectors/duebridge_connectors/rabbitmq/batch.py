"""One call of `publish` under way: its deliveries ready for the wire, and what became of each.

The caller's thread makes it and waits for it; in between only the connection's thread changes it.
"""

import threading

from duebridge.ports.publisher import Outcome
from duebridge_connectors.rabbitmq.errors import AmbiguousReturn, unanswered


class PublishBatch:
    """Outcomes that arrive one by one. It is over when all are there, or nobody waits any more.

    `groups` are its messages by exchange, each group in order; a batch without any is a ping, whose
    one outcome is whether the broker answered.
    """

    def __init__(self, size: int) -> None:
        self.groups: dict[str, list[PendingMessage]] = {}
        self.outcomes: list[Outcome | None] = [None] * size
        self.is_finished = False
        self._unsettled = size
        self._complete = threading.Event()

    def settle(self, index: int, outcome: Outcome) -> None:
        """Say what became of the delivery at a index; the first word counts."""
        if self.outcomes[index] is not None:
            return
        self.outcomes[index] = outcome
        self._unsettled -= 1
        if not self._unsettled:
            self.is_finished = True
            self._complete.set()

    def settle_rest(self, outcome: Outcome) -> None:
        """Say the same of every delivery whose outcome is not known yet."""
        for index in range(len(self.outcomes)):
            self.settle(index, outcome)

    def wait(self, seconds: float) -> bool:
        """Return True as soon as every outcome is there, False after that time."""
        return self._complete.wait(seconds)

    def end(self, sent: Outcome, unsent: Outcome) -> list[Outcome]:
        """Wait no more, and return every outcome: what is not known is one of the two."""
        self.is_finished = True
        messages = [message for group in self.groups.values() for message in group]
        sent_indexes = {message.index for message in messages if message.is_sent}
        return [
            outcome or (sent if index in sent_indexes else unsent)
            for index, outcome in enumerate(self.outcomes)
        ]


class PendingMessage:
    """One delivery of a batch, encoded but for the number of its channel."""

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
        self.older: PendingMessage | None = None  # of the same id, and under way as well
        self.returned: Outcome | None = None  # what a basic.return has made of it

    @property
    def is_settled(self) -> bool:
        """Whether its outcome is known."""
        return self.batch.outcomes[self.index] is not None

    def settle(self, outcome: Outcome) -> None:
        """Say what became of it; a basic.return that came before is the better word."""
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
        """Return the messages that an ack or nack is about; they are not under way any more."""
        if not multiple:
            tags = range(tag, tag + 1)
        else:
            tags = range(self._lowest, (tag or self.next_tag - 1) + 1)  # 0: all
            self._lowest = tags.stop
        taken = []
        for each in tags:
            message = self.by_tag.pop(each, None)
            if message is not None:
                taken.append(message)
                if self._newest.get(message.id) is message:
                    del self._newest[message.id]
        return taken

    def give_back(self, message_id: str, outcome: Outcome) -> None:
        """Note a basic.return; the ack that follows it will not mean a confirm.

        It names an id only. Should the same id be under way twice, either may have come back: both
        become INDETERMINATE.
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
        """Return whether a publish still waits for any of these."""
        return any(not message.batch.is_finished for message in self.by_tag.values())
