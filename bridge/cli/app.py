"""All commands, by the words that a person types."""

from importlib.metadata import version
from typing import Annotated

import typer

from bridge.cli.check import check
from bridge.cli.dead import ls as dead_ls
from bridge.cli.envelopes import cancel, get, reschedule
from bridge.cli.output import write
from bridge.cli.run import run
from bridge.cli.send import send
from bridge.cli.session import ConfigOption
from bridge.cli.stats import stats

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Example: duebridge --config duebridge.yaml send reminders 'call back' --delay 15m",
)
app.command(epilog="Example: duebridge --config duebridge.yaml run")(run)
app.command(epilog="Example: duebridge send reminders - --jsonl < envelopes.jsonl")(send)
app.command(epilog="Example: duebridge cancel reminders order-42")(cancel)
app.command(epilog="Example: duebridge reschedule reminders order-42 --delay 30m")(reschedule)
app.command(epilog="Example: duebridge get reminders order-42 --output json")(get)
app.command(epilog="Example: duebridge stats --output json")(stats)

dead = typer.Typer(
    help="Envelopes that ended dead.",
    epilog="Example: duebridge dead ls reminders",
)
dead.command("ls", epilog="Example: duebridge dead ls reminders --limit 20")(dead_ls)
app.add_typer(dead, name="dead")

config_group = typer.Typer(
    help="The configuration file.",
    epilog="Example: duebridge config check duebridge.yaml",
)
config_group.command("check", epilog="Example: duebridge config check duebridge.yaml")(check)
app.add_typer(config_group, name="config")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        write(version("duebridge"))
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
]


@app.callback()
def _begin(
    context: typer.Context, config: ConfigOption = None, _version: VersionOption = False
) -> None:
    """Delayed delivery for Kafka and RabbitMQ over a Redis-backed delay store.

    Exit codes: 0 done; 1 the answer is no; 2 usage or configuration; 3 store unreachable or unfit;
    4 broker unreachable or target missing; 130 interrupted.
    """
    context.obj = config
