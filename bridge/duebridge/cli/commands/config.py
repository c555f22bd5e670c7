"""`duebridge config`: checks a configuration file, prints it as it is in force, and its schema."""

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from duebridge.admin.checks.running import compare_namespace
from duebridge.cli.output import Output, OutputOption, write, write_json
from duebridge.cli.session import config_path
from duebridge.config.load import read_config_text
from duebridge.config.models import Config
from duebridge.config.offline import checked_config
from duebridge.config.render import rendered_config
from duebridge.config.schema import config_schema
from duebridge.config.secrets import unset_variables
from duebridge.config.yaml_tree import read_tree
from duebridge.errors import ConfigError
from duebridge.ports.checks import Finding, FindingSubject, failure, ok

FileArgument = Annotated[
    Path | None, typer.Argument(help="The file; without one, that of --config.", show_default=False)
]
ConnectOption = Annotated[
    bool, typer.Option("--connect", help="Ask the store and the brokers too; change nothing.")
]
RunningOption = Annotated[
    Path | None,
    typer.Option("--running", help="The file that the workers have now, if any; compare with it."),
]


class RenderOutput(StrEnum):
    """The form of a configuration."""

    YAML = "yaml"
    JSON = "json"


RenderOutputOption = Annotated[
    RenderOutput, typer.Option("--output", help="YAML, or JSON in one line.")
]


def check(
    context: typer.Context,
    file: FileArgument = None,
    connect: ConnectOption = False,
    running: RunningOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a configuration file, without any network unless --connect is given.

    It finds what a worker would refuse, and names the place of each mistake. It tells all that it
    can find at once: a misspelt key may hide mistakes in what depends on it. With --connect or
    --running all findings are shown; warnings exit 0. With --running another store.namespace fails:
    no worker would deliver the envelopes in the old namespace. Where several things fail, the exit
    code is 2 for the configuration, else 3 for the store, else 4 for a broker, else 1.
    """
    path = config_path(context, file)
    try:
        config, notes = _checked(path)
    except ConfigError as error:
        if output is Output.JSON:
            _write_mistakes(path, error)
        raise
    counts = "; ".join((f"routes: {len(config.routes)}, brokers: {len(config.brokers)}", *notes))
    valid = ok(FindingSubject.CONFIG, str(path), counts)
    if connect or running:
        from duebridge.cli.commands.doctor import conclude

        conclude([valid, *_compared(config, running), *_asked(config, connect)], output)
    elif output is Output.JSON:
        write_json(valid)
    else:
        write(f"{path}: ok ({counts})")


def render(
    context: typer.Context,
    file: FileArgument = None,
    output: RenderOutputOption = RenderOutput.YAML,
) -> None:
    """Print the effective configuration: the defaults merged into every route, secrets masked.

    The output loads again. References are shown as references; a password in the file itself, in a
    url or among the options, is shown as ***.
    """
    path = config_path(context, file)
    shown = rendered_config(read_config_text(path), str(path))
    if output is RenderOutput.JSON:
        write_json(shown)
        return
    import yaml

    write(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())


def schema() -> None:
    """Print a JSON Schema of the configuration file, for editors.

    It has the brokers and targets of all installed broker types.

    Name it in the first line of the file and the editor checks and completes what you type:
    # yaml-language-server: $schema=duebridge.schema.json
    """
    write(json.dumps(config_schema(), indent=2))


def _checked(path: Path) -> tuple[Config, list[str]]:
    """Return a file's configuration, and notes on what cannot be checked on this machine."""
    tree = read_tree(read_config_text(path), str(path))
    config, missing = checked_config(tree)
    notes = [f"not checked here: {error}" for error in missing]
    if unset := sorted(unset_variables(config.model_dump())):
        notes.append(f"not set here: {', '.join(unset)}")
    return config, notes


def _compared(config: Config, running: Path | None) -> list[Finding]:
    return [] if running is None else [compare_namespace(config, running)]


def _asked(config: Config, connect: bool) -> Iterator[Finding]:
    from duebridge.admin.checks.doctor import CONNECT_CHECKS
    from duebridge.cli.commands.doctor import examine

    return examine(config, CONNECT_CHECKS) if connect else iter(())


def _write_mistakes(path: Path, error: ConfigError) -> None:
    """Write a finding for each line of an error of the file."""
    for mistake in str(error).splitlines():
        write_json(failure(FindingSubject.CONFIG, str(path), mistake, "fix it"))
