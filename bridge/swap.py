"""What of the configuration a running worker takes over, and what it refuses: pure comparisons.

Routes may come, go and change, all but their number of shards. The store and the worker's settings
are read at the start, and so are the brokers: a lane keeps its connection.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from bridge.config import Config
from bridge.errors import ConfigError

_AT_START = "is read at the start; restart the worker for another"


class SwapRefused(ConfigError):
    """The new configuration is not taken over, and nothing has changed; a line for each reason.

    `may_pass` where the reasons are the store's and may be over later.
    """

    def __init__(self, reasons: Iterable[str], *, may_pass: bool = False) -> None:
        super().__init__("\n".join(reasons))
        self.may_pass = may_pass


class Changes(NamedTuple):
    """The routes that a swap adds, removes and changes, by name."""

    added: list[str]
    removed: list[str]
    changed: list[str]


def changes_between(old: Config, new: Config) -> Changes:
    """Return which routes differ; the defaults are part of each route."""
    both = [name for name in new.routes if name in old.routes]
    return Changes(
        added=[name for name in new.routes if name not in old.routes],
        removed=[name for name in old.routes if name not in new.routes],
        changed=[name for name in both if old.routes[name] != new.routes[name]],
    )


def fixed_at_start(old: Config, new: Config, lanes: Collection[str]) -> list[str]:
    """Return why this process can never take `new` over, with the place of each reason."""
    return [
        *_differing("store", old.store.model_dump(), new.store.model_dump()),
        *_differing("brokers", old.brokers, new.brokers),
        *_differing("worker", old.worker.model_dump(), new.worker.model_dump()),
        *_without_lane(new, lanes),
    ]


def _differing(block: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield f"{block}.{key}: {_AT_START}"


def _without_lane(new: Config, lanes: Collection[str]) -> Iterator[str]:
    for name, route in new.routes.items():
        for key, target in (("target", route.target), ("dead_letter", route.dead_letter)):
            if target is not None and target.broker not in lanes and target.broker in new.brokers:
                what = f"broker {target.broker}, which no route used at the start, has no lane"
                yield f"routes.{name}.{key}.broker: {what}; restart the worker to open one"


def other_shards(new: Config, registered: Mapping[str, int]) -> list[str]:
    """Return which routes of `new` have another number of shards than the store has."""
    return [
        f"routes.{name}.shards: expected {registered[name]}, as the store has it; got"
        f" {route.shards}. To change it, make a new route with that number and drain this one"
        for name, route in new.routes.items()
        if registered.get(name, route.shards) != route.shards
    ]


def left_behind(names: Iterable[str]) -> list[str]:
    """Return why routes with these names may not be absent."""
    return [
        f"routes.{name}: expected, since the store holds envelopes of it, until they are delivered"
        f" or dropped; to leave them there, name it in allow_absent"
        for name in names
    ]
