"""`duebridge store purge`: removes whole routes from the store, with all their data."""

from typing import TYPE_CHECKING, Annotated

import typer

from duebridge.cli.exits import finish, telling_what_is_done
from duebridge.cli.output import Output, OutputOption, complain, write_json, write_table
from duebridge.cli.session import ConfigOption, complete_route, load, opened_store
from duebridge.errors import EnvelopeError

if TYPE_CHECKING:
    from duebridge.admin.purge import PurgePlan, PurgeStatus

COLUMNS = ("route", "waiting", "dead", "shards", "workers", "configured", "status")

RoutesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="The routes' names.", show_default=False, autocompletion=complete_route),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every route of the namespace.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Purge; without it, only show.")]


def purge(
    context: typer.Context,
    routes: RoutesArgument = None,
    is_all: AllOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Remove routes from the store, with all their data.

    That is their envelopes, waiting and dead, their journal, the remembered ids, and the number of
    shards: the next first use sets it again. Without --yes nothing is changed. Exits 1, with
    nothing changed, if a worker serves one of the routes: remove it from the workers'
    configuration first, or stop them. Stop its producers too: the store cannot see them. Of two
    purges at once one says already_purged, and leaves what producers began since the other's end.
    """
    from duebridge.admin.purge import plan_purge, purge_route

    if bool(routes) == is_all:
        got = "both" if is_all else "neither"
        raise EnvelopeError(f"expected names of routes, or --all; got {got}")
    settings = load(context, config)
    with opened_store(settings) as connection:
        plans = plan_purge(settings, connection, routes or ())
        in_use = [plan.route for plan in plans if plan.workers]
        is_done = yes and not in_use
        done: dict[str, PurgeStatus] = {}
        with telling_what_is_done(lambda: _purged(done)):
            for plan in plans if is_done else ():
                done[plan.route] = purge_route(settings, connection, plan)
    _show(plans, output, done)
    _explain(plans, in_use, done, is_agreed=yes)
    finish(is_yes=not in_use)


def _purged(done: "dict[str, PurgeStatus]") -> str:
    names = [route for route, status in done.items() if status == "purged"]
    return f"{', '.join(names)} purged" if names else ""


def _explain(
    plans: "list[PurgePlan]", in_use: list[str], done: "dict[str, PurgeStatus]", *, is_agreed: bool
) -> None:
    if in_use:
        complain(f"duebridge: nothing was changed: workers serve {', '.join(in_use)}")
    elif not is_agreed:
        complain("nothing was changed; --yes does it")
    for plan in plans:
        if done.get(plan.route) == "already_purged":
            complain(f"route {plan.route}: another purge removed it; what began since then stays")
        if plan.has_cold:
            complain(f"route {plan.route}: delete the files of its cold tier too")


def _show(plans: "list[PurgePlan]", output: Output, done: "dict[str, PurgeStatus]") -> None:
    """Write the plans, each with what was done, or else its status."""
    import msgspec

    rows = [(plan, done.get(plan.route, plan.status)) for plan in plans]
    if output is Output.JSON:
        for plan, status in rows:
            shown = msgspec.structs.asdict(plan)
            del shown["life"]
            write_json({**shown, "status": status})
    else:
        write_table(COLUMNS, [_row(plan, status) for plan, status in rows])


def _row(plan: "PurgePlan", status: "PurgeStatus") -> tuple[str, ...]:
    counts = (plan.waiting, plan.dead, plan.shards, plan.workers)
    configured = "yes" if plan.configured else "no"
    return (plan.route, *map(str, counts), configured, status)
