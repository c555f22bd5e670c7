"""The double: it confirms all and remembers it, unless a test says otherwise."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from duebridge.errors import ConfigError
from duebridge.ports.checks import About, Destination, Finding, ok
from duebridge.ports.publisher import CONFIRMED, BrokerUnavailable, Delivery, Outcome, Verdict

Script = Callable[[Delivery], Outcome | None]

_AWAY = Outcome(Verdict.UNAVAILABLE, error_class="MemoryPublisher", error_message="not available")
_UNANSWERED = Outcome(
    Verdict.INDETERMINATE, error_class="MemoryPublisher", error_message="paused past the deadline"
)


class MemoryPublisher:
    """A `Publisher` without a broker. Every method may be called by several threads at once.

    `is_available` may be set to False: then every outcome is UNAVAILABLE, and an empty batch raises
    `BrokerUnavailable`.
    """

    _named: ClassVar[dict[str, "MemoryPublisher"]] = {}
    _naming: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, publish_deadline_s: float = 15.0) -> None:
        self.is_available = True
        self._deadline_s = publish_deadline_s
        self._changed = threading.Condition()
        self._delivered: list[Delivery] = []
        self._script: Script = _confirm
        self._waiting = 0
        self._is_paused = False
        self._is_closed = False

    @classmethod
    def named(cls, name: str) -> "MemoryPublisher":
        """Return the one publisher of this process that has this name."""
        with cls._naming:
            return cls._named.setdefault(name, cls())

    @property
    def delivered(self) -> list[Delivery]:
        """A copy of what was confirmed, oldest first."""
        with self._changed:
            return list(self._delivered)

    @property
    def waiting(self) -> int:
        """How many deliveries `pause` holds up now."""
        with self._changed:
            return self._waiting

    def script(self, script: Script) -> None:
        """Ask `script` for the outcome of each delivery from now on; its None means confirmed."""
        self._script = script

    def pause(self) -> None:
        """Make every `publish` from now on wait for `resume`, at most the publish deadline."""
        with self._changed:
            self._is_paused = True

    def resume(self) -> None:
        """End `pause`; what waited is published now."""
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    def deliveries_arrive(self, count: int, within_s: float) -> bool:
        """Return True as soon as `count` were confirmed since the start, False after `within_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._delivered) >= count, within_s)

    def deliveries_wait(self, count: int, within_s: float) -> bool:
        """Return True as soon as `pause` holds up `count` deliveries, False after `within_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting >= count, within_s)

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return what the script says for each delivery, and remember the confirmed ones."""
        if self._is_closed or not self.is_available:
            if not batch:
                raise BrokerUnavailable("the memory broker is not available")
            return [_AWAY] * len(batch)
        if batch and not self._passes_pause(len(batch)):
            return [_UNANSWERED] * len(batch)
        outcomes = [self._script(delivery) or CONFIRMED for delivery in batch]
        self._remember(batch, outcomes)
        return outcomes

    def close(self) -> None:
        """Be unavailable from now on; what `pause` held up becomes INDETERMINATE. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def reopen(self, publish_deadline_s: float) -> None:
        """Undo `close`, as a second worker would that connects to the same broker."""
        with self._changed:
            self._deadline_s = publish_deadline_s
            self._is_closed = False

    def _passes_pause(self, size: int) -> bool:
        with self._changed:
            self._waiting += size
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_paused or self._is_closed, self._deadline_s)
            self._waiting -= size
            return not (self._is_paused or self._is_closed)

    def _remember(self, batch: Sequence[Delivery], outcomes: Sequence[Outcome]) -> None:
        with self._changed:
            for delivery, outcome in zip(batch, outcomes, strict=True):
                if outcome.verdict is Verdict.CONFIRMED:
                    self._delivered.append(delivery)
            self._changed.notify_all()


def _confirm(_: Delivery) -> None:
    return None


def examine(
    place: str,
    settings: Mapping[str, object],
    destinations: Sequence[Destination],
    deadline_s: float,
) -> list[Finding]:
    """Return that it takes everything; see `duebridge.ports.checks.Examiner`."""
    del settings, deadline_s
    takes = [ok(About.ROUTE, each.place, "the memory broker takes all") for each in destinations]
    return [ok(About.BROKER, place, "is in this process: nothing of it outlives it"), *takes]


__all__ = ["MemoryPublisher", "Script", "open_publisher"]


def open_publisher(settings: Mapping[str, object], publish_deadline_s: float) -> MemoryPublisher:
    """Return a publisher for a broker of `type: memory`.

    With a `name` among the settings it is `MemoryPublisher.named(name)`, the same one for the whole
    process, which is how a test gets hold of what a worker has opened; without, a new one.

    Raises `ConfigError` for any other setting.
    """
    unknown = sorted(settings.keys() - {"type", "name"})
    if unknown:
        raise ConfigError(f"{unknown[0]}: unknown key; a memory broker knows type and name")
    name = settings.get("name")
    publisher = MemoryPublisher() if name is None else MemoryPublisher.named(str(name))
    publisher.reopen(publish_deadline_s)
    return publisher
