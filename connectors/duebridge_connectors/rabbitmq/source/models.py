"""The settings of an intake's source and of its declaration. Imports no client."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from duebridge.config.fields import Bytes, Whole
from duebridge.envelope import SHORT_BYTES, Target
from duebridge.ports.settings import Model, ShortText, Text, expected
from duebridge.ports.source import SourcePlan, SourceSettings

DUE_SUFFIX = ".due"


def _with_room(value: str) -> str:
    if len(f"{value}{DUE_SUFFIX}".encode()) > SHORT_BYTES:
        raise expected(f"at most {SHORT_BYTES - len(DUE_SUFFIX)} bytes in UTF-8")
    return value


class RabbitSourceSettings(SourceSettings):
    """A classic queue, a quorum queue or a stream."""

    queue: Annotated[ShortText, Field(min_length=1)]
    """Its name."""
    prefetch: Annotated[Whole, Field(ge=1, le=65_535)] = 1000
    """The most messages that the broker sends before the store has taken them."""
    prefetch_bytes: Bytes = Field("16MiB", ge=1024, validate_default=True)
    """About as many bytes of bodies: the prefetch is smaller where bodies are large."""
    offset: Literal["first", "next"] = "first"
    """Where a new intake of a stream begins: at its oldest message, or with those to come."""

    def shared(self) -> Mapping[str, str]:
        """Return what is read; see `SourceSettings.shared`."""
        return {"broker": self.broker, "queue": self.queue}

    def target(self) -> Target:
        """Return the queue; see `SourceSettings.target`."""
        return Target(self.broker, exchange="", routing_key=self.queue)


class RabbitDeclaration(Model):
    """What programs of the delayed-message plugin publish to, made by `duebridge intake declare`.

    `EXCHANGE.due`, of the type, has the consumers' bindings, and gets what is due.
    """

    exchange: Annotated[Text, AfterValidator(_with_room)]
    """The name of the exchange that they publish to."""
    type: Literal["direct", "topic", "fanout", "headers"] = "direct"
    """The exchange's x-delayed-type."""


def due_exchange(exchange: str) -> str:
    """Return the name of the exchange that gets what is due."""
    return f"{exchange}{DUE_SUFFIX}"


def own_dead_letter_queue(plan: SourcePlan) -> str:
    """Return the queue of the intake's dead letters, empty where they go elsewhere."""
    letter = plan.dead_letter
    is_queue = letter is not None and letter.broker == plan.broker and not letter.exchange
    return str(letter.routing_key) if letter is not None and is_queue else ""


def do_letters_come_back(plan: SourcePlan) -> bool:
    """Return whether the intake's dead letters go to its own queue, or to what feeds it."""
    letter = plan.dead_letter
    if letter is None or letter.broker != plan.broker:
        return False
    if letter.exchange:
        return plan.declare is not None and letter.exchange == str(plan.declare["exchange"])
    return letter.routing_key == str(plan.source["queue"])


def expired_target(plan: SourcePlan) -> Target | None:
    """Return where messages that expire in the queue go: to its dead letters, if at its broker."""
    letter = plan.dead_letter
    is_here = letter is not None and letter.broker == plan.broker
    return letter if is_here and not do_letters_come_back(plan) else None


def declaring_intake(target: Target, plans: Iterable[SourcePlan]) -> str:
    """Return the intake whose declaration makes a target's exchange or queue; empty for none."""
    exchange, queue = target.exchange, target.routing_key
    for plan in plans:
        declared = "" if plan.declare is None else str(plan.declare["exchange"])
        queues = (str(plan.source["queue"]), own_dead_letter_queue(plan))
        exchanges = (declared, due_exchange(declared)) if declared else ()
        if exchange in exchanges if exchange else queue in queues:
            return plan.intake
    return ""
