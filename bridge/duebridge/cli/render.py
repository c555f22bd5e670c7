"""`duebridge config render`: prints the effective configuration."""

from enum import StrEnum
from typing import Annotated

import typer
import yaml

from duebridge.cli.check import FileArgument
from duebridge.cli.output import write, write_json
from duebridge.cli.session import config_path
from duebridge.config.load import read_config_text
from duebridge.config.render import rendered_config


class RenderOutput(StrEnum):
    """The form of a configuration."""

    YAML = "yaml"
    JSON = "json"


OutputOption = Annotated[RenderOutput, typer.Option("--output", help="YAML, or JSON in one line.")]


def render(
    context: typer.Context, file: FileArgument = None, output: OutputOption = RenderOutput.YAML
) -> None:
    """Print the effective configuration: the defaults merged into every route, secrets masked.

    The output loads again. References are shown as references; a password in the file itself, in a
    url or among the options, is shown as ***.
    """
    path = config_path(context, file)
    shown = rendered_config(read_config_text(path), str(path))
    if output is RenderOutput.JSON:
        write_json(shown)
    else:
        write(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())
