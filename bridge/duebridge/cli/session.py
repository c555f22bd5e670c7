"""Opens what commands share: arguments and options, the configuration, the store, a producer.

Functions import the configuration and the store themselves: a command's `--help` needs neither.
"""

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duebridge.cli import allow_interrupts
from duebridge.errors import ConfigError, ConfigFileError, StoreUnavailable, StoreUnfit
from duebridge.instants import parse_at

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator
    from duebridge.config.models import Config
    from duebridge.producer import Producer
    from duebridge.store.server.connection import Connection

DEFAULT_CONFIG = Path("duebridge.yaml")
# What a command that goes on until Ctrl-C waits for, once it has begun: amid a rotation the store
# refuses a password that its file replaces a moment later.
AWAY = (StoreUnavailable, StoreUnfit)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="The configuration file.", show_default=DEFAULT_CONFIG.name),
]


def complete_route(context: typer.Context, incomplete: str) -> list[str]:
    """Return the configured routes that begin like this; none if the file cannot be loaded."""
    from duebridge.config.load import load_config

    given = context.params.get("config") or context.find_root().params.get("config")
    try:
        routes = load_config(Path(given or DEFAULT_CONFIG)).routes
    except ConfigError:
        return []
    return [name for name in routes if name.startswith(incomplete)]


RouteArgument = Annotated[
    str,
    typer.Argument(help="The route's name.", show_default=False, autocompletion=complete_route),
]
RouteFilter = Annotated[
    str | None,
    typer.Argument(help="The route's name; all routes by default.", autocompletion=complete_route),
]
IdArgument = Annotated[str, typer.Argument(help="The envelope's id.", show_default=False)]

DURATIONS = "500ms, 2.5s, 15m, 1h30m, 3d, 2w"
DelayOption = Annotated[str | None, typer.Option(help=f"Due after this delay: {DURATIONS}.")]
AtOption = Annotated[
    datetime | None,
    typer.Option(
        help="Due at: RFC 3339 with an offset, or epoch milliseconds.",
        parser=parse_at,
        metavar="<instant>",
    ),
]


def named_config(context: typer.Context, given: Path | None) -> Path:
    """Return the file named after the command, before it, or by default; it may not exist."""
    return given or context.obj or DEFAULT_CONFIG


def config_path(context: typer.Context, given: Path | None) -> Path:
    """Return the configuration file; raises `ConfigError` if none is named and none is here."""
    path = named_config(context, given)
    if path is DEFAULT_CONFIG and not path.exists():
        remedy = "name one with --config or DUEBRIDGE_CONFIG"
        raise ConfigFileError(f"{path}: cannot be read: No such file or directory; {remedy}")
    return path


def config_if_any(context: typer.Context, given: Path | None) -> Path | None:
    """Return the configuration file; None if none is named and none is here."""
    path = named_config(context, given)
    return None if path is DEFAULT_CONFIG and not path.exists() else path


def load(context: typer.Context, given: Path | None) -> "Config":
    """Return the configuration; raises `ConfigError`."""
    from duebridge.config.load import load_config

    return load_config(config_path(context, given))


@contextmanager
def opened_store(config: "Config", repeat_for_s: float = 0.0) -> "Iterator[Connection]":
    """Give a connection to the store; raises `ConfigError` or `StoreError`, without the URL."""
    from duebridge.config.load import resolved_store_url
    from duebridge.store.server.connection import opened_connection

    allow_interrupts()
    read_url = partial(resolved_store_url, config)
    with opened_connection(read_url(), repeat_for_s, read_url) as connection:
        connection.actor = actor_name()
        yield connection


def actor_name() -> str:
    """Return the user whom the journal names: `DUEBRIDGE_ACTOR`, else the system's user."""
    from duebridge.store.caller import MOST_ACTOR

    try:
        name = os.environ.get("DUEBRIDGE_ACTOR") or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        name = f"uid {os.getuid()}"
    return name[:MOST_ACTOR]


@contextmanager
def opened_operator(config: "Config") -> "Iterator[Operator]":
    """Give the operator's side of the store; raises as `opened_store` does."""
    from duebridge.admin.operator import Operator

    with opened_store(config) as connection:
        yield Operator(config, connection)


@contextmanager
def opened_producer(config: "Config") -> "Iterator[Producer]":
    """Give a producer; raises as `opened_store` does, and `StoreUnfit`."""
    with opened_store(config) as connection:
        yield producer_on(config, connection)


def producer_on(config: "Config", connection: "Connection") -> "Producer":
    """Return a producer; where the store is away, a person is told at once."""
    from duebridge.producer import Producer
    from duebridge.store.server.fitness import check_fitness

    check_fitness(connection, config.store.allow_unfit, needs=config.needs)
    return Producer(config, connection)
