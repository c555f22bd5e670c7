"""`duebridge intake`: the intakes of the configuration, and what programs of the plugin need."""

from typing import TYPE_CHECKING, Annotated

import typer

from duebridge.cli.output import Output, OutputOption, write, write_json, write_table
from duebridge.cli.session import ConfigOption, load, opened_store

if TYPE_CHECKING:
    from duebridge.admin.intakes import IntakeState

COLUMNS = ("intake", "broker", "source", "route", "to", "dead letters", "lag", "process", "")

NameArgument = Annotated[str, typer.Argument(help="The intake's name.", show_default=False)]


def ls(
    context: typer.Context, output: OutputOption = Output.TABLE, config: ConfigOption = None
) -> None:
    """List the intakes of the configuration, and the processes that run them.

    The lag is the number of messages waiting at the broker for the process, by its last record, at
    most a few seconds old; a dash, in JSON null, where unknown, as while no process runs it: then
    `duebridge doctor` counts what a RabbitMQ queue holds, and Kafka's own tools what a group lacks.
    """
    from duebridge.admin.intakes import intake_states

    settings = load(context, config)
    with opened_store(settings) as connection:
        states = intake_states(settings, connection)
    if output is Output.JSON:
        for state in states:
            write_json(state)
    else:
        write_table(COLUMNS, [_row(state) for state in states])


def declare(context: typer.Context, name: NameArgument, config: ConfigOption = None) -> None:
    """Declare what an intake needs at its broker; prints a line for each thing.

    That is its queue, its dead-letter queue and the exchange that its `declare` names, to which
    programs of RabbitMQ's delayed-message plugin publish. Harmless to repeat; what is there and
    differs is refused and not touched.
    """
    from duebridge.admin.intakes import declare_intake

    for line in declare_intake(load(context, config), name):
        write(line)


def _row(state: "IntakeState") -> tuple[str, ...]:
    source = " ".join(f"{key}={value}" for key, value in state.source.items())
    lag = "-" if state.lag is None else str(state.lag)
    target = "-" if state.dead_letter is None else str(state.dead_letter)
    known = (state.intake, state.broker, source, state.route, state.to, target, lag)
    return (*known, state.process or "-", state.error)
