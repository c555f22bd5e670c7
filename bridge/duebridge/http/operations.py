"""Operations: what a method on a path does, and the scope that it takes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from duebridge.envelope import target_as_dict
from duebridge.http.access import Rates, check_may, token_of
from duebridge.http.bodies import check_encoding
from duebridge.http.problems import Refusal
from duebridge.http.site import Site
from duebridge.http.together import Together
from duebridge.http.tokens import Scope, Token
from duebridge.scheduling import find_route

Choice = TypeVar("Choice", bound=str)

JSON = "application/json"
_encode = msgspec.json.Encoder(enc_hook=target_as_dict).encode


class Shared(NamedTuple):
    """What all requests of an application share."""

    site: Site
    rates: Rates
    together: Together


class Call(NamedTuple):
    """A request that may be served, with its token, and the route's name if it has one."""

    request: Request
    token: Token
    route: str
    site: Site
    rates: Rates
    together: Together


Handler: TypeAlias = Callable[[Call], Awaitable[Response]]


class Operation(NamedTuple):
    """What a method does, and the scope that it takes; `configured`: the route has to be."""

    handler: Handler
    scope: Scope
    configured: bool = True


def route_of(path: str, shared: Shared, methods: Mapping[str, Operation]) -> Route:
    """Return the route of a path: checks token, scope, route and rate, then lets the handler go."""
    readable = path.replace(":path}", "}")

    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = methods[method]
        name = request.path_params.get("route", "")
        request.state.path = readable  # this and the token: for the access log
        token = token_of(request, shared.site.tokens)
        request.state.token = token.name
        check_may(token, operation.scope, name or None)
        shared.rates.check(token)
        check_encoding(request)
        if name and operation.configured:
            find_route(shared.site.config, name)
        return await operation.handler(Call(request, token, name, *shared))

    return Route(path, serve, methods=[*methods])


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(_encode(value), status, headers, JSON)


def query_choice(request: Request, name: str, known: tuple[Choice, ...]) -> Choice:
    """Return a query parameter that is one of these, the first if absent; raises `Refusal` 400."""
    given = request.query_params.get(name, known[0])
    for each in known:
        if each == given:
            return each
    raise Refusal(400, "Bad request", f"{name}: expected one of {', '.join(known)}; got another")
