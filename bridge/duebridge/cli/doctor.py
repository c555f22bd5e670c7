"""`duebridge doctor`: everything a beginner gets wrong, and what to do about it."""

from pathlib import Path

import typer

from duebridge.admin.doctor import DOCTOR_CHECKS
from duebridge.cli.check import look
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption, config_path
from duebridge.cli.verdict import conclude
from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.errors import ConfigError
from duebridge.ports.checks import About, Finding, failure, ok


def doctor(
    context: typer.Context, output: OutputOption = Output.TABLE, config: ConfigOption = None
) -> None:
    """Look for everything that keeps envelopes from being delivered, and say what to do.

    It looks at the configuration, the packages it needs, the store, the routes in it, whether
    workers listen, and at every broker and target. Nothing is changed or sent. Warnings exit 0.
    Where several things fail, the exit code is 2 for the configuration or a missing package, else
    3 for the store, else 4 for a broker, else 1.
    """
    path = config_path(context, config)
    settings, findings = _load(path)
    if settings is not None:
        findings += look(settings, DOCTOR_CHECKS)
    conclude(findings, output)


def _load(path: Path) -> tuple[Config | None, list[Finding]]:
    try:
        config = load_config(path)
    except ConfigError as error:
        return None, [_mistake(path, line) for line in str(error).splitlines()]
    counts = f"routes: {len(config.routes)}, brokers: {len(config.brokers)}"
    return config, [ok(About.CONFIG, str(path), counts)]


def _mistake(path: Path, line: str) -> Finding:
    if not path.exists():
        remedy = "write one (the README has a short one), or name it with --config"
        return failure(About.CONFIG, str(path), "there is no such file", remedy)
    place, _, text = line.partition(" ")
    return failure(About.CONFIG, place.rstrip(":"), text, "mend it there")
