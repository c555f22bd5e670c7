"""`duebridge config check`: whether the file is right and, if asked, what it names is there."""

from pathlib import Path
from typing import Annotated

import typer

from duebridge.admin.doctor import CONNECT_CHECKS
from duebridge.cli.commands.doctor import conclude, look
from duebridge.cli.output import Output, OutputOption, write, write_json
from duebridge.cli.session import config_path
from duebridge.config.load import load_config
from duebridge.config.secrets import unset_variables
from duebridge.errors import ConfigError
from duebridge.ports.checks import About, failure, ok

FileArgument = Annotated[
    Path | None, typer.Argument(help="The file; without one, that of --config.", show_default=False)
]
ConnectOption = Annotated[
    bool, typer.Option("--connect", help="Ask the store and the brokers too; change nothing.")
]


def check(
    context: typer.Context,
    file: FileArgument = None,
    connect: ConnectOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a configuration file, without any network unless --connect is given.

    It names the place of every mistake. With --connect all findings are shown; warnings exit 0.
    Where several things fail, the exit code is 2 for the configuration, else 3 for the store, else
    4 for a broker, else 1.
    """
    path = config_path(context, file)
    try:
        config = load_config(path)
    except ConfigError as error:
        if output is Output.JSON:
            write_json_mistakes(path, error)
        raise
    counts = f"routes: {len(config.routes)}, brokers: {len(config.brokers)}"
    if unset := sorted(unset_variables(config.model_dump())):
        counts += f"; not set here: {', '.join(unset)}"
    valid = ok(About.CONFIG, str(path), counts)
    if connect:
        conclude([valid, *look(config, CONNECT_CHECKS)], output)
    elif output is Output.JSON:
        write_json(valid)
    else:
        write(f"{path}: ok ({counts})")


def write_json_mistakes(path: Path, error: ConfigError) -> None:
    """Write a finding for each line of what is wrong with a file."""
    for mistake in str(error).splitlines():
        write_json(failure(About.CONFIG, str(path), mistake, "mend it"))
