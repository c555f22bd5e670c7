"""`duebridge config schema`: prints the JSON Schema of the configuration file."""

import json

from duebridge.cli.output import write
from duebridge.config.schema import config_schema


def schema() -> None:
    """Print a JSON Schema of the configuration file, for editors.

    It has the brokers and targets of all installed broker types.

    Name it in the first line of the file and the editor checks and completes what you type:
    # yaml-language-server: $schema=duebridge.schema.json
    """
    write(json.dumps(config_schema(), indent=2))
