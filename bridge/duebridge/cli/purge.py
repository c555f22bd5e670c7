"""`duebridge store purge`: routes that are over leave the store, with all that is in them."""

from typing import Annotated

import msgspec
import typer

from duebridge.admin.purge import Condemned, condemn
from duebridge.admin.purge import purge as purge_route
from duebridge.cli.completion import complete_route
from duebridge.cli.exits import finish
from duebridge.cli.output import Output, OutputOption, complain, write_json, write_table
from duebridge.cli.session import ConfigOption, load, opened_store
from duebridge.errors import EnvelopeError

COLUMNS = ("route", "waiting", "dead", "shards", "workers", "configured", "status")

RoutesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Their names.", show_default=False, autocompletion=complete_route),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every route of the namespace.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it; else it is only shown.")]


class Answer(Condemned, frozen=True):
    """What there was of a route, and what became of it: `purged`, `in_use` or `would_purge`."""

    status: str


def purge(
    context: typer.Context,
    routes: RoutesArgument = None,
    is_all: AllOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Remove routes from the store, with all that is in them.

    Their envelopes go, waiting and dead, their journal, what is remembered of ids, and the number
    of shards: the next first use sets it anew. Without --yes nothing is changed. Exits 1, nothing
    changed, where a worker serves one of them: take it out of the workers' configuration first, or
    stop them. Producers must have let go of it too: nobody sees them.
    """
    if bool(routes) == is_all:
        got = "both" if is_all else "neither"
        raise EnvelopeError(f"expected names of routes, or --all; got {got}")
    settings = load(context, config)
    with opened_store(settings) as connection:
        condemned = condemn(settings, connection, routes or ())
        in_use = [each.route for each in condemned if each.workers]
        if yes and not in_use:
            for each in condemned:
                purge_route(settings, connection, each)
    is_done = yes and not in_use
    _show([_answer(each, is_done) for each in condemned], output)
    if in_use:
        complain(f"duebridge: nothing was changed: workers serve {', '.join(in_use)}")
    elif not yes:
        complain("nothing was changed; --yes does it")
    for each in condemned:
        if each.has_cold:
            complain(f"route {each.route}: delete the files of its cold tier too")
    finish(is_yes=not in_use)


def _answer(condemned: Condemned, is_done: bool) -> Answer:
    status = "purged" if is_done else "in_use" if condemned.workers else "would_purge"
    return Answer(**msgspec.structs.asdict(condemned), status=status)


def _show(answers: list[Answer], output: Output) -> None:
    if output is Output.JSON:
        for each in answers:
            write_json(each)
    else:
        write_table(COLUMNS, [_row(each) for each in answers])


def _row(answer: Answer) -> tuple[str, ...]:
    counts = (answer.waiting, answer.dead, answer.shards, answer.workers)
    configured = "yes" if answer.configured else "no"
    return (answer.route, *map(str, counts), configured, answer.status)
