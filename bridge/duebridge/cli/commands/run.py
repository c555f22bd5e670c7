"""`duebridge run`: a worker process, from its start to its drain."""

from typing import TYPE_CHECKING, Annotated

import typer

from duebridge.cli.exits import DONE, NO
from duebridge.cli.session import ConfigOption, config_path
from duebridge.cli.signals import Signals
from duebridge.errors import ConfigError

if TYPE_CHECKING:
    from duebridge.config.models import Config

HealthPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        envvar="DUEBRIDGE_HEALTH_PORT",
        help="Serve /livez, /readyz, /metrics and /due on this port; 0 takes a free one.",
    ),
]

UntilEmptyOption = Annotated[
    bool, typer.Option("--until-empty", help="Exit once nothing in the store waits for delivery.")
]

OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="intake:NAME",
        help="Run this intake alone, without lanes; may be repeated.",
        show_default=False,
    ),
]
INTAKE = "intake:"


def run(
    context: typer.Context,
    config: ConfigOption = None,
    health_port: HealthPort = None,
    until_empty: UntilEmptyOption = False,
    only: OnlyOption = None,
) -> None:
    """Deliver due envelopes, and take messages in, until SIGTERM or SIGINT.

    Intakes of the configuration run beside the lanes; with --only intake:NAME those alone, and
    nothing is delivered.

    At the signal it drains, intakes first, and exits 0. The drain takes at most worker.drain
    (default 20s); a second signal ends the process at once. Logs go to standard error: text on a
    terminal, else one JSON object per line.

    When the configuration file changes, or at SIGHUP, the worker applies its routes, all or none,
    and logs config_swapped or config_refused with the reasons. A change of store, brokers or worker
    needs a restart.

    With --until-empty it also exits when no configured route has an envelope to deliver or a dead
    letter to send: with 0 if the store is empty, with 1 if it was stopped earlier or the store
    still has envelopes that no worker takes out, each route logged as left_in_store. Its intakes
    end first, once nothing is left; what they took in by then is delivered. Those of other
    processes on this store must be off.
    """
    # First: a SIGHUP amid the start, or the imports for it, would end the process.
    signals = Signals(unbegun=NO if until_empty else DONE)
    from duebridge.cli.worker_process import ProcessOptions, run_process
    from duebridge.config.load import load_config_text, read_config_text
    from duebridge.telemetry.logs import configure_logs

    path = config_path(context, config)
    text = read_config_text(path)
    settings = load_config_text(text, str(path))
    names = chosen_intakes(settings, only, until_empty=until_empty)
    configure_logs()
    options = ProcessOptions(path, text, names, health_port, bool(only), until_empty)
    run_process(settings, options, signals)


def chosen_intakes(settings: "Config", only: list[str] | None, *, until_empty: bool) -> list[str]:
    """Return the intakes to run; raises `ConfigError` for an unknown one."""
    from duebridge.admin.intakes import find_intake

    if not only:
        return list(settings.intakes)
    if until_empty:
        raise ConfigError("--until-empty: expected no --only beside it, which delivers nothing")
    for given in only:
        if not given.startswith(INTAKE):
            raise ConfigError(f"--only: expected {INTAKE}NAME; got {given!r}")
        find_intake(settings, given.removeprefix(INTAKE))
    return list(dict.fromkeys(given.removeprefix(INTAKE) for given in only))
