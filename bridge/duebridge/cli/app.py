"""Every command: its words, its summary, its examples and its exit codes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from duebridge.cli.lazy import CommandSpec, LazyGroup, PluginSpecs, manual
from duebridge.cli.session import DEFAULT_CONFIG


def _command(target: str, summary: str, *examples: str, **codes: Any) -> CommandSpec:
    """Return the spec of a command of ours; `codes` are those of `manual`."""
    return CommandSpec(f"duebridge.cli.commands.{target}", summary, manual(*examples, **codes))


def _group(group: type[LazyGroup], *examples: str, **codes: Any) -> typer.Typer:
    """Return a group, whose summary is its docstring."""
    epilog = manual(*examples, **codes)
    return typer.Typer(cls=group, help=group.__doc__, epilog=epilog, rich_markup_mode=None)


class DeadGroup(LazyGroup):
    """Inspect, replay, drop and shunt dead envelopes."""

    specs: ClassVar[Mapping[str, CommandSpec]] = {
        "ls": _command(
            "dead.verbs:ls",
            "List the dead envelopes of a route, and why.",
            "duebridge dead ls reminders --reason unroutable --limit 20",
        ),
        "show": _command(
            "dead.verbs:show",
            "Show everything known of one dead envelope.",
            "duebridge dead show reminders order-42 --body",
            no="it is not dead",
        ),
        "replay": _command(
            "dead.verbs:replay",
            "Schedule dead envelopes again.",
            "duebridge dead replay reminders order-42 order-43",
            "duebridge dead replay reminders --reason unroutable --dry-run",
            "duebridge dead replay reminders --all --rate 50/s --delay 5m --yes",
            "duebridge dead replay reminders --error refused --spread 10m",
            no="an id is unknown, in flight, or not dead",
        ),
        "shunt": _command(
            "dead.verbs:shunt",
            "Try dead letters again that their target rejected.",
            "duebridge dead shunt reminders",
            no="there is none",
        ),
        "drop": _command(
            "dead.verbs:drop",
            "Delete dead envelopes for good.",
            "duebridge dead drop reminders order-42",
            "duebridge dead drop reminders --before 30d --yes",
            no="an id is unknown, in flight, or not dead",
        ),
    }


class StoreGroup(LazyGroup):
    """Maintain the delay store itself."""

    specs: ClassVar[Mapping[str, CommandSpec]] = {
        "purge": _command(
            "purge:purge",
            "Remove routes from the store, with all their data.",
            "duebridge store purge old-reminders",
            "duebridge store purge --all --yes",
            no="a worker serves one of the routes",
        ),
    }


class IntakeGroup(LazyGroup):
    """List and set up the queues and topics that feed the store."""

    specs: ClassVar[Mapping[str, CommandSpec]] = {
        "ls": _command(
            "intake:ls",
            "List the intakes, and the processes that run them.",
            "duebridge intake ls",
            "duebridge intake ls --output json",
        ),
        "declare": _command(
            "intake:declare",
            "Declare what an intake needs at its broker.",
            "duebridge intake declare from-plugin",
            needs_store=False,
            broker=True,
        ),
    }


class ConfigGroup(LazyGroup):
    """Check and print the configuration."""

    specs: ClassVar[Mapping[str, CommandSpec]] = {
        "check": _command(
            "config:check",
            "Check a configuration file.",
            "duebridge config check duebridge.yaml",
            "duebridge config check duebridge.yaml --connect",
            no="something hinders a route",
            broker=True,
        ),
        "render": _command(
            "config:render",
            "Print the effective configuration.",
            "duebridge config render duebridge.yaml",
            needs_store=False,
        ),
        "schema": _command(
            "config:schema",
            "Print a JSON Schema of the configuration file, for editors.",
            "duebridge config schema > duebridge.schema.json",
            needs_store=False,
        ),
    }


dead = _group(
    DeadGroup, "duebridge dead ls reminders", no="an id is unknown, in flight, or not dead"
)
store = _group(
    StoreGroup, "duebridge store purge old-reminders", no="a worker serves one of the routes"
)
intake = _group(IntakeGroup, "duebridge intake ls", broker=True)
config = _group(
    ConfigGroup, "duebridge config check duebridge.yaml", no="a check failed", broker=True
)


def _of_group(name: str, group: typer.Typer) -> CommandSpec:
    return CommandSpec(f"{__name__}:{name}", str(group.info.help))


class RootGroup(LazyGroup):
    """`duebridge`."""

    specs: ClassVar[Mapping[str, CommandSpec]] = PluginSpecs(
        {
            "run": _command(
                "run:run",
                "Deliver due envelopes, and take messages in, until SIGTERM or SIGINT.",
                "duebridge --config duebridge.yaml run",
                "duebridge --config old.yaml run --until-empty",
                "duebridge run --only intake:from-plugin",
                no="with --until-empty, the store is not empty",
                broker=True,
            ),
            "serve": _command(
                "serve:serve",
                "Serve envelopes over HTTP, and the console at /, until SIGTERM or SIGINT.",
                "duebridge --config duebridge.yaml serve",
            ),
            "token": _command(
                "token:token",
                "Make a token for the HTTP interface.",
                "duebridge token shop --scopes schedule,read --routes 'order-*'",
                needs_store=False,
            ),
            "send": _command(
                "send:send",
                "Schedule an envelope, or a stream of them.",
                "duebridge send reminders 'call back' --delay 15m --id order-42",
                "duebridge send reminders - --jsonl --rejects refused.jsonl < envelopes.jsonl",
                no="conflict, in_flight, cancelled, dead, or a refused line",
            ),
            "cancel": _command(
                "envelopes:cancel",
                "Cancel an envelope, or many.",
                "duebridge cancel reminders order-42",
                "duebridge ls reminders --due-before 1h --output json"
                " | duebridge cancel reminders -",
                "duebridge cancel reminders - --ended-since 2026-01-31T09:00:00Z < journal.jsonl",
                no="an id is in flight, dead or unknown, or a line is refused",
            ),
            "reschedule": _command(
                "envelopes:reschedule",
                "Give an envelope another due instant.",
                "duebridge reschedule reminders order-42 --delay 30m",
                no="an id is in flight, dead or unknown",
            ),
            "deliver-now": _command(
                "envelopes:deliver_now",
                "Make envelopes due now, whatever their due instant or next try.",
                "duebridge deliver-now reminders order-42 order-43",
                no="an id is in flight, dead or unknown",
            ),
            "get": _command(
                "envelopes:get",
                "Show everything known of an envelope.",
                "duebridge get reminders order-42 --output json",
                "duebridge get reminders order-42 --body",
                no="the id is unknown",
            ),
            "ls": _command(
                "ls:ls",
                "List the envelopes of a route.",
                "duebridge ls reminders --state pending --due-before 1h",
                "duebridge ls reminders --long --body",
                "duebridge ls reminders --limit 1000 --output json",
            ),
            "stats": _command(
                "stats:stats",
                "Count the envelopes of every route by state.",
                "duebridge stats --output json",
                "duebridge stats --watch --every 5s",
                "duebridge stats reminders --histogram --horizon day",
            ),
            "top": _command(
                "top:top",
                "Show routes, rates, held targets and what falls due, until Ctrl-C.",
                "duebridge top",
                "duebridge top reminders --once",
            ),
            "events": _command(
                "events:events",
                "Print what happened to the envelopes, oldest first.",
                "duebridge events reminders --since 15m",
                "duebridge events --follow",
            ),
            "doctor": _command(
                "doctor:doctor",
                "Find what keeps envelopes from being delivered.",
                "duebridge --config duebridge.yaml doctor",
                no="something hinders a route",
                broker=True,
            ),
            "acl": _command(
                "acl:acl",
                "Print the minimal rights of the store and broker users.",
                "duebridge acl",
                "duebridge acl --role readonly --acl-file >> /etc/redis/users.acl",
                needs_store=False,
            ),
            "bench": _command(
                "bench:bench",
                "Measure the bridge beside the same client publishing alone.",
                "duebridge bench --only bridge,idle --rounds 5",
                broker=True,
            ),
            "dead": _of_group("dead", dead),
            "intake": _of_group("intake", intake),
            "store": _of_group("store", store),
            "config": _of_group("config", config),
        }
    )


app = typer.Typer(
    cls=RootGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=manual(
        "duebridge --config duebridge.yaml send reminders 'call back' --delay 15m",
        no="unknown id, conflict, a check failed",
        broker=True,
    ),
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        from duebridge.cli.output import write

        write(version("duebridge"))
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
]


# The variable is named only here: a command's own --config wins over this one.
GlobalConfigOption = Annotated[
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
    context: typer.Context, config: GlobalConfigOption = None, _version: VersionOption = False
) -> None:
    """Delayed delivery for Kafka and RabbitMQ over a Redis-backed delay store."""
    context.obj = config
