"""All commands, by the words that a person types."""

from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Annotated

import typer

from duebridge.cli.bench import bench
from duebridge.cli.check import check
from duebridge.cli.dead import drop as dead_drop
from duebridge.cli.dead import ls as dead_ls
from duebridge.cli.dead import replay as dead_replay
from duebridge.cli.dead import show as dead_show
from duebridge.cli.doctor import doctor
from duebridge.cli.envelopes import cancel, get, reschedule
from duebridge.cli.events import events
from duebridge.cli.ls import ls
from duebridge.cli.manual import manual
from duebridge.cli.output import write
from duebridge.cli.purge import purge
from duebridge.cli.render import render
from duebridge.cli.run import run
from duebridge.cli.schema import schema
from duebridge.cli.send import send
from duebridge.cli.session import DEFAULT_CONFIG
from duebridge.cli.stats import stats

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=manual(
        "duebridge --config duebridge.yaml send reminders 'call back' --delay 15m",
        no="unknown id, conflict, a check failed",
        broker=True,
    ),
)
app.command(
    epilog=manual(
        "duebridge --config duebridge.yaml run",
        "duebridge --config old.yaml run --until-empty",
        no="with --until-empty, the store is not empty",
        broker=True,
    )
)(run)
app.command(
    epilog=manual(
        "duebridge send reminders 'call back' --delay 15m --id order-42",
        "duebridge send reminders - --jsonl --rejects refused.jsonl < envelopes.jsonl",
        no="conflict, in_flight, or a refused line",
    )
)(send)
app.command(
    epilog=manual(
        "duebridge cancel reminders order-42",
        "duebridge ls reminders --due-before 1h --output json | duebridge cancel reminders -",
        "duebridge cancel reminders - --ended-since 2026-01-31T09:00:00Z < journal.jsonl",
        no="in flight, dead or unknown",
    )
)(cancel)
app.command(
    epilog=manual(
        "duebridge reschedule reminders order-42 --delay 30m", no="in flight, dead or unknown"
    )
)(reschedule)
app.command(
    epilog=manual("duebridge get reminders order-42 --output json", no="the id is unknown")
)(get)
app.command(
    epilog=manual(
        "duebridge ls reminders --state pending --due-before 1h",
        "duebridge ls reminders --limit 1000 --output json",
    )
)(ls)
app.command(epilog=manual("duebridge stats --output json", "duebridge stats --watch --every 5s"))(
    stats
)
app.command(epilog=manual("duebridge events reminders --since 15m", "duebridge events --follow"))(
    events
)
app.command(
    short_help="Find what keeps envelopes from being delivered.",
    epilog=manual(
        "duebridge --config duebridge.yaml doctor",
        no="something hinders a route",
        broker=True,
    ),
)(doctor)
app.command(epilog=manual("duebridge bench --only bridge,idle --rounds 5", broker=True))(bench)

dead = typer.Typer(
    help="Envelopes that ended dead.",
    epilog=manual("duebridge dead ls reminders", no="not dead, unknown or in flight"),
)
dead.command("ls", epilog=manual("duebridge dead ls reminders --reason unroutable --limit 20"))(
    dead_ls
)
dead.command(
    "show",
    epilog=manual("duebridge dead show reminders order-42 --body", no="it is not dead"),
)(dead_show)
dead.command(
    "replay",
    epilog=manual(
        "duebridge dead replay reminders order-42 order-43",
        "duebridge dead replay reminders --reason unroutable --dry-run",
        "duebridge dead replay reminders --all --rate 50/s --delay 5m --yes",
        no="one is unknown or in flight",
    ),
)(dead_replay)
dead.command(
    "drop",
    epilog=manual(
        "duebridge dead drop reminders order-42",
        "duebridge dead drop reminders --before 30d --yes",
        no="one is unknown or in flight",
    ),
)(dead_drop)
app.add_typer(dead, name="dead")

store = typer.Typer(
    help="The delay store itself.",
    epilog=manual("duebridge store purge --all", no="a worker serves a route that is to go"),
)
store.command(
    "purge",
    epilog=manual(
        "duebridge store purge old-reminders",
        "duebridge store purge old-reminders --yes",
        "duebridge store purge --all --yes",
        no="a worker serves one of them",
    ),
)(purge)
app.add_typer(store, name="store")

config_group = typer.Typer(
    help="The configuration file.",
    epilog=manual(
        "duebridge config check duebridge.yaml",
        no="a check failed",
        broker=True,
    ),
)
config_group.command(
    "check",
    short_help="Check a configuration file.",
    epilog=manual(
        "duebridge config check duebridge.yaml",
        "duebridge config check duebridge.yaml --connect",
        no="something hinders a route",
        broker=True,
    ),
)(check)
config_group.command(
    "render",
    short_help="Print the effective configuration.",
    epilog=manual("duebridge config render duebridge.yaml", needs_store=False),
)(render)
config_group.command(
    "schema", epilog=manual("duebridge config schema > duebridge.schema.json", needs_store=False)
)(schema)
app.add_typer(config_group, name="config")


for each in sorted(entry_points(group="duebridge.commands")):
    app.add_typer(each.load(), name=each.name)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        write(version("duebridge"))
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
]


# Only here: the option of a command says otherwise, and so does the one before it.
BeginOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="DUEBRIDGE_CONFIG",
        help="The configuration file.",
        show_default=DEFAULT_CONFIG.name,
    ),
]


@app.callback()
def _begin(
    context: typer.Context, config: BeginOption = None, _version: VersionOption = False
) -> None:
    """Delayed delivery for Kafka and RabbitMQ over a Redis-backed delay store."""
    context.obj = config
