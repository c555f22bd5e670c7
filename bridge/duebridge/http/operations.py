"""Operations: the handler of a method on a path, and the scope that it needs."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from duebridge.envelope import JSON, target_as_dict
from duebridge.errors import UnknownRoute, shown, unknown_name
from duebridge.http.access import Rates, check_may, token_of
from duebridge.http.batcher import ScheduleBatcher
from duebridge.http.bodies import check_encoding
from duebridge.http.problems import ProblemError
from duebridge.http.site import Site
from duebridge.http.tokens import Scope, Token
from duebridge.scheduling.route_scheduler import find_route
from duebridge.store.caller import never

Choice = TypeVar("Choice", bound=str)

_encode = msgspec.json.Encoder(enc_hook=target_as_dict).encode


class AppContext(NamedTuple):
    """The service, rate limits and batcher that all requests of an application use."""

    site: Site
    rates: Rates
    batcher: ScheduleBatcher


class AuthorizedCall(NamedTuple):
    """A request that passed the checks, with its token, and its route's name if it has one."""

    request: Request
    token: Token
    route: str
    site: Site
    rates: Rates
    batcher: ScheduleBatcher

    @property
    def has_left(self) -> Callable[[], bool]:
        """Tells, also later, whether the client waits for its answer no more."""
        found: Callable[[], bool] = self.request.scope["state"].get("has_left", never)
        return found

    def check_again(self, scope: Scope) -> None:
        """Raise `ProblemError` 401 or 403 unless the tokens, as they are now, let it go on."""
        is_known = self.site.tokens.has(self.token)
        token = self.token if is_known else token_of(self.request, self.site.tokens)
        check_may(token, scope, self.route)


Handler: TypeAlias = Callable[[AuthorizedCall], Awaitable[Response]]


class Operation(NamedTuple):
    """The handler of a method, and the scope it needs; `configured`: its route must be, too.

    `query` has the names of its query parameters.
    """

    handler: Handler
    scope: Scope
    configured: bool = True
    query: tuple[str, ...] = ()


class Endpoint:
    """Serves a path: checks token, scope, route and rate, then lets the handler go.

    An application of ASGI: Starlette's frame around a function would handle errors a second time.
    """

    def __init__(self, path: str, context: AppContext, methods: Mapping[str, Operation]) -> None:
        self._path = written_path(path)
        self._context = context
        self._methods = methods

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["state"]["path"] = self._path  # this and the token: for the access log
        response = await self._answer(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = self._methods[method]
        name = request.path_params.get("route", "")
        token = token_of(request, self._context.site.tokens)
        request.scope["state"]["token"] = token.name
        check_may(token, operation.scope, name or None)
        self._context.rates.check(token)
        check_encoding(request)
        check_query(request, operation.query)
        try:
            if name and operation.configured:
                find_route(self._context.site.config, name)
            return await operation.handler(AuthorizedCall(request, token, name, *self._context))
        except UnknownRoute:
            raise _unknown_route(name, token, self._context.site.config.routes) from None


class AnyConvertor(PathConvertor):
    """Takes the rest of a path whole: Starlette's `path` leaves out a line break at its end."""

    regex = r"(?s:.*)"


register_url_convertor("any", AnyConvertor())


def written_path(path: str) -> str:
    """Return a path as people read it."""
    return path.replace(":any}", "}")


def route_of(path: str, context: AppContext, methods: Mapping[str, Operation]) -> Route:
    """Build the route of a path, with its operations."""
    return Route(path, Endpoint(path, context, methods), methods=[*methods])


def _unknown_route(name: str, token: Token, routes: Iterable[str]) -> UnknownRoute:
    """Return the error for an unknown route, which names those of the token alone."""
    own = filter(token.covers, routes)
    return UnknownRoute(f"route: {unknown_name('one that is configured', name, own)}")


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(_encode(value), status, headers, JSON)


def check_query(request: Request, known: tuple[str, ...]) -> None:
    """Raise `ProblemError` 400 for a query parameter that the operation does not have."""
    if not request.scope["query_string"]:  # of most requests: to parse it costs more than to look
        return
    for name in request.query_params:
        if name not in known:
            what = unknown_name("a parameter of this operation", name, known)
            raise ProblemError(400, "Bad request", f"query: {what}")


def query_choice(request: Request, name: str, known: tuple[Choice, ...]) -> Choice:
    """Return a query parameter; the first choice if absent. Raises `ProblemError` 400."""
    if not request.scope["query_string"]:
        return known[0]
    given = request.query_params.get(name, known[0])
    for each in known:
        if each == given:
            return each
    detail = f"{name}: expected one of {', '.join(known)}; got {shown(given)}"
    raise ProblemError(400, "Bad request", detail)
