"""Durability settings: their values, their order, and their needs of a server."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field, WrapValidator

from duebridge.config.fields import Ms, Whole, within
from duebridge.ports.settings import Model, expected

# WAIT takes 0 for ever, and a call waits two seconds for the answer of a Cluster's node.
_TIMEOUT = within("1ms", "1500ms")
_EXPECTED = "async, fsync, or {replicated: {replicas: 2}}"


class ReplicaWait(Model):
    """The replicas that must confirm a call's writes, and how long it waits for them."""

    replicas: Annotated[Whole, Field(ge=1)]
    """How many replicas must have it: all that may be promoted."""
    timeout: Annotated[Ms, _TIMEOUT] = "1s"  # type: ignore[assignment]
    """How long a call waits for them, at most 1500ms; then it is indeterminate and made again."""


class ReplicatedDurability(Model):
    """The setting `replicated`."""

    replicated: ReplicaWait
    """Survives the loss of the primary."""


def _read(given: Any, _: Any) -> Any:
    if isinstance(given, ReplicatedDurability) or given in ("async", "fsync"):
        return given
    if isinstance(given, dict):
        return ReplicatedDurability.model_validate(given)
    raise expected(_EXPECTED)


Durability: TypeAlias = Annotated[
    Literal["async", "fsync"] | ReplicatedDurability, WrapValidator(_read)
]


def replication_of(durability: Durability) -> ReplicaWait | None:
    """Return the replicas that a call waits for; None where it does not wait."""
    return durability.replicated if isinstance(durability, ReplicatedDurability) else None


def strictness(durability: Durability) -> tuple[int, int]:
    """Return a sort key of durabilities: async, fsync, then replicated by number of replicas."""
    if isinstance(durability, ReplicatedDurability):
        return 2, durability.replicated.replicas
    return int(durability == "fsync"), 0


def in_words(durability: Durability) -> str:
    """Return a durability for a message."""
    if isinstance(durability, ReplicatedDurability):
        return f"replicated by {durability.replicated.replicas}"
    return durability


class DurabilityNeeds(NamedTuple):
    """The needs of durabilities: a sync at every write, and at most so many replicas.

    `replicas` is the fewest that a call waits for, `most_replicas` the most, 0 where none waits.
    """

    fsync: bool = False
    replicas: int = 0
    most_replicas: int = 0

    @classmethod
    def of(cls, durabilities: Iterable[Durability]) -> "DurabilityNeeds":
        """Return the combined needs of these durabilities."""
        given = list(durabilities)
        waited = [each.replicas for each in map(replication_of, given) if each is not None]
        return cls("fsync" in given, min(waited, default=0), max(waited, default=0))
