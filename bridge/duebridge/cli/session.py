"""What a command works with: the configuration it names, and the store that this one names."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from duebridge.config.load import load_config, resolved_store_url
from duebridge.config.models import Config
from duebridge.producer import Producer
from duebridge.store.connection import Connection, opened_connection

DEFAULT_CONFIG = Path("duebridge.yaml")

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="The configuration file.", show_default=DEFAULT_CONFIG.name),
]


def config_path(context: typer.Context, given: Path | None) -> Path:
    """Return the file that was named, after the command or before it."""
    return given or context.obj or DEFAULT_CONFIG


def load(context: typer.Context, given: Path | None) -> Config:
    """Return the configuration; raises `ConfigError`."""
    return load_config(config_path(context, given))


@contextmanager
def opened_store(config: Config) -> Iterator[Connection]:
    """Give a connection to the store; raises `ConfigError` or `StoreError`, without the URL."""
    with opened_connection(resolved_store_url(config)) as connection:
        yield connection


@contextmanager
def opened_producer(config: Config) -> Iterator[Producer]:
    """Give a producer; raises as `opened_store` does, and `StoreUnfit`."""
    with opened_store(config) as connection:
        yield Producer(config, connection)
