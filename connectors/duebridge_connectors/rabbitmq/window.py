"""What is under way on one channel: which parcel a basic.ack, nack or return is about."""

from duebridge.ports.publisher import Outcome
from duebridge_connectors.rabbitmq.batch import Parcel
from duebridge_connectors.rabbitmq.errors import ReturnedOrItsTwin, unanswered


class Window:
    """The unconfirmed parcels of a channel by delivery tag, which RabbitMQ counts up from 1."""

    def __init__(self) -> None:
        self.unconfirmed: dict[int, Parcel] = {}
        self.next_tag = 1
        self._lowest = 1  # all below are confirmed
        self._newest: dict[str, Parcel] = {}  # by id

    def add(self, parcel: Parcel) -> None:
        """Count a parcel as published."""
        self.unconfirmed[self.next_tag] = parcel
        self.next_tag += 1
        older = self._newest.get(parcel.id)
        if older is not None:
            parcel.older = older
        self._newest[parcel.id] = parcel

    def take(self, tag: int, multiple: bool) -> list[Parcel]:
        """Return the parcels that an ack or nack is about; they are not under way any more."""
        if not multiple:
            tags = range(tag, tag + 1)
        else:
            tags = range(self._lowest, (tag or self.next_tag - 1) + 1)  # 0: all
            self._lowest = tags.stop
        taken = []
        for each in tags:
            parcel = self.unconfirmed.pop(each, None)
            if parcel is not None:
                taken.append(parcel)
                if self._newest.get(parcel.id) is parcel:
                    del self._newest[parcel.id]
        return taken

    def give_back(self, message_id: str, outcome: Outcome) -> None:
        """Note a basic.return; the ack that follows it will not mean a confirm.

        It names an id only. Should the same id be under way twice, either may have come back: both
        become INDETERMINATE.
        """
        parcel = self._newest.get(message_id)
        if parcel is None:
            return
        parcel.returned = outcome
        older = parcel.older
        while older is not None:
            if not older.is_settled:
                doubt = unanswered(ReturnedOrItsTwin(outcome.error_message))
                parcel.returned = older.returned = doubt
            older = older.older

    def is_awaited(self) -> bool:
        """Return whether a publish still waits for any of these."""
        return any(not parcel.batch.is_over for parcel in self.unconfirmed.values())
