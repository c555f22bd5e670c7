"""Every command: its words, its summary, its examples and its exit codes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from duebridge.cli.lazy import CommandSpec, LazyGroup, PluginSpecs, manual
from duebridge.cli.session import DEFAULT_CONFIG


class DeadGroup(LazyGroup):
    """`duebridge dead`."""

    specs: ClassVar[Mapping[str, CommandSpec]] = {
        "ls": CommandSpec(
            "duebridge.cli.commands.dead:ls",
            "List the dead envelopes of a route, and why.",
            manual("duebridge dead ls reminders --reason unroutable --limit 20"),
        ),
        "show": CommandSpec(
            "duebridge.cli.commands.dead:show",
            "Show everything known of one dead envelope.",
            manual("duebridge dead show reminders order-42 --body", no="it is not dead"),
        ),
        "replay": CommandSpec(
            "duebridge.cli.commands.dead:replay",
            "Schedule dead envelopes again.",
            manual(
                "duebridge dead replay reminders order-42 order-43",
                "duebridge dead replay reminders --reason unroutable --dry-run",
                "duebridge dead replay reminders --all --rate 50/s --delay 5m --yes",
                no="an id is not dead, unknown or in flight",
            ),
        ),
        "drop": CommandSpec(
            "duebridge.cli.commands.dead:drop",
            "Delete dead envelopes for good.",
            manual(
                "duebridge dead drop reminders order-42",
                "duebridge dead drop reminders --before 30d --yes",
                no="an id is not dead, unknown or in flight",
            ),
        ),
    }


class StoreGroup(LazyGroup):
    """`duebridge store`."""

    specs: ClassVar[Mapping[str, CommandSpec]] = {
        "purge": CommandSpec(
            "duebridge.cli.commands.purge:purge",
            "Remove routes from the store, with all their data.",
            manual(
                "duebridge store purge old-reminders",
                "duebridge store purge old-reminders --yes",
                "duebridge store purge --all --yes",
                no="a worker serves one of the routes",
            ),
        ),
    }


class ConfigGroup(LazyGroup):
    """`duebridge config`."""

    specs: ClassVar[Mapping[str, CommandSpec]] = {
        "check": CommandSpec(
            "duebridge.cli.commands.config:check",
            "Check a configuration file.",
            manual(
                "duebridge config check duebridge.yaml",
                "duebridge config check duebridge.yaml --connect",
                no="something hinders a route",
                broker=True,
            ),
        ),
        "render": CommandSpec(
            "duebridge.cli.commands.config:render",
            "Print the effective configuration.",
            manual("duebridge config render duebridge.yaml", needs_store=False),
        ),
        "schema": CommandSpec(
            "duebridge.cli.commands.config:schema",
            "Print a JSON Schema of the configuration file, for editors.",
            manual("duebridge config schema > duebridge.schema.json", needs_store=False),
        ),
    }


class RootGroup(LazyGroup):
    """`duebridge`."""

    specs: ClassVar[Mapping[str, CommandSpec]] = PluginSpecs(
        {
            "run": CommandSpec(
                "duebridge.cli.commands.run:run",
                "Deliver due envelopes until SIGTERM or SIGINT.",
                manual(
                    "duebridge --config duebridge.yaml run",
                    "duebridge --config old.yaml run --until-empty",
                    no="with --until-empty, the store is not empty",
                    broker=True,
                ),
            ),
            "send": CommandSpec(
                "duebridge.cli.commands.send:send",
                "Schedule an envelope, or a stream of them.",
                manual(
                    "duebridge send reminders 'call back' --delay 15m --id order-42",
                    "duebridge send reminders - --jsonl --rejects refused.jsonl < envelopes.jsonl",
                    no="conflict, in_flight, or a refused line",
                ),
            ),
            "cancel": CommandSpec(
                "duebridge.cli.commands.envelopes:cancel",
                "Cancel an envelope, or many.",
                manual(
                    "duebridge cancel reminders order-42",
                    "duebridge ls reminders --due-before 1h --output json"
                    " | duebridge cancel reminders -",
                    "duebridge cancel reminders - --ended-since 2026-01-31T09:00:00Z"
                    " < journal.jsonl",
                    no="in flight, dead or unknown",
                ),
            ),
            "reschedule": CommandSpec(
                "duebridge.cli.commands.envelopes:reschedule",
                "Give an envelope another due instant.",
                manual(
                    "duebridge reschedule reminders order-42 --delay 30m",
                    no="in flight, dead or unknown",
                ),
            ),
            "get": CommandSpec(
                "duebridge.cli.commands.envelopes:get",
                "Show what is known of an envelope.",
                manual("duebridge get reminders order-42 --output json", no="the id is unknown"),
            ),
            "ls": CommandSpec(
                "duebridge.cli.commands.ls:ls",
                "List the envelopes of a route.",
                manual(
                    "duebridge ls reminders --state pending --due-before 1h",
                    "duebridge ls reminders --limit 1000 --output json",
                ),
            ),
            "stats": CommandSpec(
                "duebridge.cli.commands.stats:stats",
                "Count the envelopes of every route by state.",
                manual("duebridge stats --output json", "duebridge stats --watch --every 5s"),
            ),
            "events": CommandSpec(
                "duebridge.cli.commands.events:events",
                "Print what happened to the envelopes, oldest first.",
                manual("duebridge events reminders --since 15m", "duebridge events --follow"),
            ),
            "doctor": CommandSpec(
                "duebridge.cli.commands.doctor:doctor",
                "Find what keeps envelopes from being delivered.",
                manual(
                    "duebridge --config duebridge.yaml doctor",
                    no="something hinders a route",
                    broker=True,
                ),
            ),
            "bench": CommandSpec(
                "duebridge.cli.commands.bench:bench",
                "Measure the bridge beside the same client publishing alone.",
                manual("duebridge bench --only bridge,idle --rounds 5", broker=True),
            ),
            "dead": CommandSpec(
                "duebridge.cli.app:dead", "Inspect, replay and drop dead envelopes."
            ),
            "store": CommandSpec("duebridge.cli.app:store", "Maintain the delay store itself."),
            "config": CommandSpec("duebridge.cli.app:config", "Check and print the configuration."),
        }
    )


dead = typer.Typer(
    cls=DeadGroup,
    help="Inspect, replay and drop dead envelopes.",
    epilog=manual("duebridge dead ls reminders", no="not dead, unknown or in flight"),
    rich_markup_mode=None,
)
store = typer.Typer(
    cls=StoreGroup,
    help="Maintain the delay store itself.",
    epilog=manual("duebridge store purge --all", no="a worker serves one of the routes"),
    rich_markup_mode=None,
)
config = typer.Typer(
    cls=ConfigGroup,
    help="Check and print the configuration.",
    epilog=manual("duebridge config check duebridge.yaml", no="a check failed", broker=True),
    rich_markup_mode=None,
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
