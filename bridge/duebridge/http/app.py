"""The application: every path of the interface, and the console's beside them."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from duebridge.envelope import JSON
from duebridge.errors import BridgeError, shown
from duebridge.http.access import Rates
from duebridge.http.access_log import Guard
from duebridge.http.batcher import ScheduleBatcher
from duebridge.http.endpoints import envelopes, probes, readings
from duebridge.http.openapi import description
from duebridge.http.operations import AppContext, Operation, route_of
from duebridge.http.problems import ProblemError, log_defect, refusal_of
from duebridge.http.site import Site

ROUTE = "/v1/routes/{route}"
ENVELOPE = f"{ROUTE}/envelopes/{{id:any}}"
OPERATIONS: Mapping[str, Mapping[str, Operation]] = {
    f"{ROUTE}/envelopes": {  # most come here
        "POST": Operation(envelopes.post, "schedule", query=("on_conflict",))
    },
    "/v1/routes": {"GET": Operation(readings.list_routes, "read")},
    f"{ROUTE}/stats": {"GET": Operation(readings.show_stats, "read", configured=False)},
    f"{ROUTE}/histogram": {
        "GET": Operation(
            readings.show_histogram, "read", configured=False, query=("horizon", "buckets")
        )
    },
    f"{ENVELOPE}/deliver-now": {"POST": Operation(envelopes.deliver_now, "operate")},
    ENVELOPE: {
        "GET": Operation(envelopes.get, "read"),
        "PATCH": Operation(envelopes.patch, "schedule"),
        "DELETE": Operation(envelopes.delete, "schedule"),
    },
    "/metrics": {"GET": Operation(probes.metrics, "read")},
}


def build_app(site: Site, extra_routes: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application of a site; `extra_routes` come after its own."""
    shared = AppContext(site, Rates(site.config.serve.rate), ScheduleBatcher(site))
    own = [route_of(path, shared, methods) for path, methods in OPERATIONS.items()]

    readiness = probes.Readiness(site)

    async def readyz(_: Request) -> Response:
        is_ready = await readiness.is_ready()
        return PlainTextResponse("ok" if is_ready else "not ready", 200 if is_ready else 503)

    described = msgspec.json.encode(description(OPERATIONS))

    async def openapi(_: Request) -> Response:
        return Response(described, media_type=JSON)

    watched = [
        Route("/openapi.json", openapi),
        Route("/livez", probes.livez),
        Route("/readyz", readyz),
    ]
    app = Starlette(
        routes=[*own, *watched, *extra_routes],
        middleware=[Middleware(Guard, access_log=site.access_log)],
        exception_handlers={
            BridgeError: _refuse,
            ProblemError: _refuse,
            ClientDisconnect: _nobody,
            HTTPException: _refuse_request,
            Exception: _refuse,
        },
    )
    # Starlette's redirect would go to the Host of the request, by the scheme behind a TLS proxy.
    app.router.redirect_slashes = False
    return app


async def _refuse(_: Request, error: Exception) -> Response:
    refusal = refusal_of(error)
    if refusal.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log_defect(error)
    return refusal.response()


async def _nobody(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it


async def _refuse_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - as it is registered
    phrase, detail = HTTPStatus(error.status_code).phrase, _detail(request, error)
    return ProblemError(error.status_code, phrase, detail, error.headers).response()


def _detail(request: Request, error: HTTPException) -> str:
    """Return what Starlette's router expected: it says the name of the status alone."""
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            return f"path: expected one that /openapi.json lists; got {shown(request.url.path)}"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
            return f"method: expected {' or '.join(allowed)}; got {shown(request.method)}"
    return str(error.detail)
