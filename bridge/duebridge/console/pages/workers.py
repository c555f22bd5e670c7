"""The workers: what each said of itself last."""

import msgspec
from starlette.responses import Response

from duebridge.console.visit import Visit
from duebridge.store.workers import HeldTarget, WorkerRecord

ANY_ROUTE = ""  # only the glob of every route has it


async def page(visit: Visit) -> Response:
    """Return the page."""
    records, now_ms = await visit.run(lambda: _gather(visit))
    return visit.page("workers.html", "workers", records=records, now_ms=now_ms)


def _gather(visit: Visit) -> tuple[list[WorkerRecord] | None, int]:
    records = visit.site.operator.workers()
    if records is not None:
        records = [
            msgspec.structs.replace(
                each,
                routes=tuple(filter(visit.may_read, each.routes)),
                held=tuple(held for held in each.held if _may_see(visit, held)),
                intakes=tuple(one for one in each.intakes if _may_see_intake(visit, one.name)),
            )
            for each in records
        ]
    return records, visit.site.operator.now_ms()


def _may_see_intake(visit: Visit, name: str) -> bool:
    """Whether its route is the person's; one that is not configured here is any route's."""
    named = visit.site.config.intakes.get(name)
    return visit.may_read(named.route if named else ANY_ROUTE)


def _may_see(visit: Visit, held: HeldTarget) -> bool:
    return any(map(visit.may_read, (*held.routes, *held.letters_of)))
