"""`duebridge config`: the configuration file as such."""

from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.output import write
from bridge.cli.session import config_path
from bridge.config_file import load_config

FileArgument = Annotated[
    Path | None, typer.Argument(help="The file; without one, that of --config.", show_default=False)
]


def check(context: typer.Context, file: FileArgument = None) -> None:
    """Check a configuration file, without any network.

    Exits 2 and names the place where it finds a mistake.
    """
    path = config_path(context, file)
    config = load_config(path)
    write(f"{path}: ok (routes: {len(config.routes)}, brokers: {len(config.brokers)})")
