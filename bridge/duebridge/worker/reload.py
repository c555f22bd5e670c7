"""Hot-reloads the configuration file.

Compares the file's text once a second, so that symlinks (a mounted ConfigMap) and editors that
replace the file work. Applies a text after two consecutive reads returned it, to skip half-written
files. SIGHUP applies the current text immediately, even if unchanged: the contents of
`${file:...}` may have changed. What the store refuses for now is tried again at every read; any
other refused text once such a file of its changes: a mounted Secret may come after its ConfigMap.
A pipe is not read again: that would wait for somebody who writes it, while a stop waits too.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import structlog

from duebridge.config.load import load_config_text, read_config_text
from duebridge.config.models import Config
from duebridge.config.secrets import referenced_files
from duebridge.errors import BridgeError, ConfigError, StoreUnavailable
from duebridge.store.server.connection import Connection
from duebridge.store.server.fitness import check_fitness, missing_replicas, silent_nodes
from duebridge.telemetry import metrics

CONFIG_EVERY_S = 1.0
FileStamps: TypeAlias = dict[str, tuple[int, int, int] | None]

log = structlog.get_logger()


class SwapRefused(ConfigError):
    """The new configuration is refused and nothing has changed; one line per reason.

    `may_pass`: the reasons depend on the store's contents, so a later attempt may succeed.
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
    """Return the routes that differ; defaults are merged into each route."""
    both = [name for name in new.routes if name in old.routes]
    return Changes(
        added=[name for name in new.routes if name not in old.routes],
        removed=[name for name in old.routes if name not in new.routes],
        changed=[name for name in both if old.routes[name] != new.routes[name]],
    )


def fixed_at_start(old: Config, new: Config, lanes: Collection[str]) -> list[str]:
    """Return the settings in `new` that require a restart, one line with its path each."""
    return [
        *_differing("store", old.store.model_dump(), new.store.model_dump()),
        *_differing("brokers", old.brokers, new.brokers),
        *_differing("worker", old.worker.model_dump(), new.worker.model_dump()),
        *_differing("intakes", old.intakes, new.intakes),
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
                reason = f"broker {target.broker}, which no route used at the start, has no lane"
                yield f"routes.{name}.{key}.broker: {reason}; restart the worker to open one"


def other_shards(new: Config, registered: Mapping[str, int]) -> list[str]:
    """Return a line per route of `new` whose number of shards differs from the store's."""
    return [
        f"routes.{name}.shards: expected {registered[name]}, as the store has it; got"
        f" {route.shards}. To change it, make a new route with that number and drain this one"
        for name, route in new.routes.items()
        if registered.get(name, route.shards) != route.shards
    ]


def left_behind(counts: Mapping[str, int]) -> list[str]:
    """Return a line per removed route with envelopes; of a count of 0, they may be cold."""
    return [
        f"routes.{name}: expected, since {_HOLDS if count else _MAY_HOLD};"
        f" to leave them there, name it in allow_absent"
        for name, count in sorted(counts.items())
    ]


def check_store(connection: Connection, config: Config, repeat_for_s: float = 0.0) -> None:
    """Check the store for what all durabilities need; log what is allowed, or not known yet.

    That is also replicas that are missing, and nodes of a Cluster that are away.

    Raises `StoreUnfit`, and `StoreUnavailable` after `repeat_for_s`.
    """
    allowed = config.store.allow_unfit
    for fault in check_fitness(connection, allowed, repeat_for_s, config.needs):
        log.warning("store_unfit", fault=fault)
    for node in connection.repeat_while_away(partial(silent_nodes, connection), repeat_for_s).value:
        log.warning("store_node_away", node=node, fault="whether it is fit is unknown")
    missing = partial(missing_replicas, connection, config.needs)
    if fault := connection.repeat_while_away(missing, repeat_for_s).value:
        log.warning("replicas_missing", fault=f"{fault}: until then nothing is delivered")


def check_new_needs(connection: Connection, old: Config, new: Config) -> None:
    """Check the store where the durabilities of `new` need something else than those of `old`.

    Raises `StoreUnfit` and `StoreUnavailable`.
    """
    if new.needs != old.needs:
        check_store(connection, new)


def can_be_read_again(path: Path) -> bool:
    """Return whether reading a file ends: that of a pipe waits for somebody who writes it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return True  # reading it says what is wrong
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def file_stamps(text: str) -> FileStamps:
    """Return what tells that a file behind `${file:...}` has changed; None for one not there."""
    return {path: _stamp(path) for path in referenced_files(text)}


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Reload:
    """Watches the configuration file of a worker process; a refused change has no effect."""

    def __init__(self, path: Path, text: str, swap: Callable[[Config], Changes]) -> None:
        """Watch `path`, whose `text` is in effect; `swap` applies a configuration or raises."""
        self._path = path
        self._swap = swap
        self._settled = text  # in effect, or refused until it or a file that it names changes
        self._refused_files: FileStamps | None = None  # as they were when it was refused
        self._seen = text, file_stamps(text)
        self._must_apply = False  # asked for, and neither applied nor refused permanently since
        self._logged = ""

    def run_once(self, *, is_asked: bool = False) -> None:
        """Read the file and apply a changed text, or any if asked; log the result once."""
        self._must_apply |= is_asked
        try:
            if not can_be_read_again(self._path):
                return self._leave_unread(is_asked=is_asked)
            text = read_config_text(self._path)
            files = file_stamps(text)
            is_new = text != self._settled
            is_steady = text == self._seen[0] and (is_new or files == self._seen[1])
            self._seen = text, files
            is_same = not is_new and self._refused_files in (None, files)
            if is_asked or (is_steady and (self._must_apply or not is_same)):
                self._take(text, files)
        except BridgeError as error:
            self._refuse(error, is_asked=is_asked)

    def _leave_unread(self, *, is_asked: bool) -> None:
        """Say once that the file is not watched; an answer to whoever asks is a refusal."""
        reason, self._must_apply = f"{self._path}: {_READ_ONCE}", False
        if is_asked:
            raise ConfigError(reason)
        if self._logged != reason:
            self._logged = reason
            log.warning("config_not_watched", reason=reason)

    def _take(self, text: str, files: FileStamps) -> None:
        try:
            changes = self._swap(load_config_text(text, str(self._path)))
        except ConfigError as error:
            # a refusal that may pass is retried at every read
            if not (isinstance(error, SwapRefused) and error.may_pass):
                self._settled, self._refused_files, self._must_apply = text, files, False
            raise
        self._settled, self._refused_files, self._must_apply = text, None, False
        self._logged = ""
        metrics.config_swapped.inc()
        log.info("config_swapped", **changes._asdict())

    def _refuse(self, error: BridgeError, *, is_asked: bool) -> None:
        """Log a refusal once, not at every read of a faulty file, nor each error of an outage."""
        told = "away" if isinstance(error, StoreUnavailable) else str(error)
        if told == self._logged and not is_asked:
            return
        self._logged = told
        metrics.config_refused.inc()
        log.error("config_refused", reasons=str(error).splitlines())


_HOLDS = "the store holds envelopes of it, until they are delivered or dropped"
_MAY_HOLD = "its cold tier may hold envelopes, until it is purged"
_READ_ONCE = "no regular file, so it is read at the start only; restart to apply another"
_AT_START = "is read at the start; restart the worker for another"
