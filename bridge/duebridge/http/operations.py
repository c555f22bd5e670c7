"""Operations: what a method on a path does, and the scope that it takes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from duebridge.envelope import target_as_dict
from duebridge.http.access import Rates, check_may, token_of
from duebridge.http.problems import Refusal
from duebridge.http.site import Site
from duebridge.http.tokens import Scope, Token
from duebridge.scheduling import find_route

JSON = "application/json"
_encode = msgspec.json.Encoder(enc_hook=target_as_dict).encode


class Call(NamedTuple):
    """A request that may be served: its site, its token, and the route's name if it has one."""

    site: Site
    request: Request
    token: Token
    route: str


Handler: TypeAlias = Callable[[Call], Awaitable[Response]]


class Operation(NamedTuple):
    """What a method does; without a scope it takes no token. `configured`: the route has to be."""

    handler: Handler
    scope: Scope | None
    configured: bool = True


def route_of(path: str, site: Site, rates: Rates, methods: Mapping[str, Operation]) -> Route:
    """Return the route of a path: checks token, scope, route and rate, then lets the handler go."""

    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = methods[method]
        name = request.path_params.get("route", "")
        token = token_of(request, site.tokens)
        request.state.token = token.name  # for the access log
        check_may(token, operation.scope or "read", name or None)
        rates.check(token)
        if name and operation.configured:
            find_route(site.config, name)
        return await operation.handler(Call(site, request, token, name))

    return Route(path, serve, methods=[*methods])


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(_encode(value), status, headers, JSON)


def query_choice(request: Request, name: str, known: tuple[str, ...]) -> str:
    """Return a query parameter that is one of these, the first if absent; raises `Refusal` 400."""
    value = request.query_params.get(name, known[0])
    if value not in known:
        raise Refusal(
            400, "Bad request", f"{name}: expected one of {', '.join(known)}; got another"
        )
    return value
