"""The publisher of `type: memory`, which confirms and keeps deliveries."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from duebridge.errors import ConfigError
from duebridge.ports.publisher import CONFIRMED, BrokerUnavailable, Delivery, Outcome, Verdict

Script = Callable[[Delivery], Outcome | None]

_NOT_AVAILABLE = Outcome(
    Verdict.UNAVAILABLE, error_class="MemoryPublisher", error_message="not available"
)
_UNANSWERED = Outcome(
    Verdict.INDETERMINATE, error_class="MemoryPublisher", error_message="paused past the deadline"
)


class MemoryPublisher:
    """A `Publisher` without a broker. Thread-safe.

    `is_available` may be set to False: then every outcome is UNAVAILABLE, and `ping` raises
    `BrokerUnavailable`.
    """

    _named: ClassVar[dict[str, "MemoryPublisher"]] = {}
    _named_lock: ClassVar[threading.Lock] = threading.Lock()

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
        """Return this process's publisher with this name."""
        with cls._named_lock:
            return cls._named.setdefault(name, cls())

    @property
    def delivered(self) -> list[Delivery]:
        """A copy of the confirmed deliveries, oldest first."""
        with self._changed:
            return list(self._delivered)

    @property
    def waiting(self) -> int:
        """The number of deliveries that `pause` holds."""
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
        """End `pause`; publish the held deliveries."""
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
        """Return the script's outcome for each delivery; keep the confirmed ones."""
        if self._is_unavailable():
            return [_NOT_AVAILABLE] * len(batch)
        if batch and not self._wait_while_paused(len(batch)):
            return [_UNANSWERED] * len(batch)
        outcomes = [self._script(delivery) or CONFIRMED for delivery in batch]
        self._remember(batch, outcomes)
        return outcomes

    def ping(self) -> None:
        """Raise `BrokerUnavailable` while closed or not available."""
        if self._is_unavailable():
            raise BrokerUnavailable("the memory broker is not available")

    def close(self) -> None:
        """Become unavailable; held deliveries become INDETERMINATE. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def reopen(self, publish_deadline_s: float) -> None:
        """Undo `close`, as a second worker would that connects to the same broker."""
        with self._changed:
            self._deadline_s = publish_deadline_s
            self._is_closed = False

    def _is_unavailable(self) -> bool:
        return self._is_closed or not self.is_available

    def _wait_while_paused(self, size: int) -> bool:
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


def open_publisher(settings: Mapping[str, object], publish_deadline_s: float) -> MemoryPublisher:
    """Return a publisher for a broker of `type: memory`.

    With a `name` among the options it is `MemoryPublisher.named(name)`, the same one in the whole
    process, so that a test reaches the publisher that a worker has opened; without, a new one.

    Raises `ConfigError` for any other option.
    """
    name = name_of(settings)
    publisher = MemoryPublisher() if name is None else MemoryPublisher.named(name)
    publisher.reopen(publish_deadline_s)
    return publisher


def name_of(settings: Mapping[str, object]) -> str | None:
    """Return the option `name`; raises `ConfigError` for any other option."""
    options = settings.get("options", {})
    if not isinstance(options, Mapping):
        raise ConfigError(f"options: expected a mapping; got {type(options).__name__}")
    if unknown := sorted(options.keys() - {"name"}):
        raise ConfigError(f"options.{unknown[0]}: unknown option; a memory broker has name alone")
    return str(options["name"]) if "name" in options else None
