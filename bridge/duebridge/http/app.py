"""The application: every path of the interface, and the console's beside them."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from duebridge.errors import BridgeError
from duebridge.http.access import Rates
from duebridge.http.operations import Operation, route_of
from duebridge.http.problems import Refusal, of_error
from duebridge.http.readings import list_routes, show_stats
from duebridge.http.site import Site

ROUTE = "/v1/routes/{route}"
OPERATIONS: Mapping[str, Mapping[str, Operation]] = {
    "/v1/routes": {"GET": Operation(list_routes, "read")},
    f"{ROUTE}/stats": {"GET": Operation(show_stats, "read", configured=False)},
}


def build_app(site: Site, extra_routes: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application of a site; `extra_routes` come after its own."""
    rates = Rates(None)
    own = [route_of(path, site, rates, methods) for path, methods in OPERATIONS.items()]
    return Starlette(
        routes=[*own, *extra_routes],
        exception_handlers={
            BridgeError: _refuse,
            Refusal: _refuse,
            HTTPException: _refuse_request,
            Exception: _refuse,
        },
    )


async def _refuse(_: Request, error: Exception) -> Response:
    return of_error(error)


async def _refuse_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - as it is registered
    phrase = HTTPStatus(error.status_code).phrase
    return Refusal(error.status_code, phrase, str(error.detail), error.headers).response()
