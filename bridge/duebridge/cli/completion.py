"""What the shell offers when a person presses the tab key: it never fails and never asks a store.

The names of routes are those of the configuration that the line names, or of the default one.
"""

from pathlib import Path

import typer

from duebridge.cli.session import DEFAULT_CONFIG
from duebridge.config.load import load_config
from duebridge.errors import ConfigError
from duebridge.ports.publisher import Reason


def complete_route(context: typer.Context, incomplete: str) -> list[str]:
    """Return the routes that begin like this; none where the configuration cannot be read."""
    given = context.params.get("config") or context.find_root().params.get("config")
    try:
        routes = load_config(Path(given or DEFAULT_CONFIG)).routes
    except ConfigError:
        return []
    return [name for name in routes if name.startswith(incomplete)]


def complete_reason(incomplete: str) -> list[str]:
    """Return the reasons that begin like this."""
    return [each.word for each in Reason if each.word.startswith(incomplete)]
