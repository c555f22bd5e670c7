"""The console's routes: each page behind a session, each write behind a session and its proof."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from duebridge.console import door
from duebridge.console.forms import read_form
from duebridge.console.pages import (
    configuration,
    dead,
    due,
    envelope,
    overview,
    route,
    search,
    workers,
)
from duebridge.console.sessions import COOKIE, Session
from duebridge.console.visit import (
    PATHS,
    Console,
    Visit,
    refusal_of,
    shown_error,
    with_session,
)
from duebridge.http.access_log import OTHER
from duebridge.http.problems import ProblemError
from duebridge.http.site import Site

Page: TypeAlias = Callable[[Visit], Awaitable[Response]]

SECURE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PAGES: dict[str, Page] = {
    PATHS["overview"]: overview.page,
    PATHS["route"]: route.page,
    PATHS["search"]: search.page,
    PATHS["envelope"]: envelope.page,
    PATHS["due"]: due.page,
    PATHS["dead"]: dead.page,
    PATHS["workers"]: workers.page,
    PATHS["configuration"]: configuration.page,
}
WRITES: dict[str, Page] = {
    "/envelope/deliver-now": envelope.deliver_now,
    "/envelope/cancel": envelope.cancel,
    "/envelope/reschedule": envelope.reschedule,
    "/dead/review": dead.review,
    "/dead/settle": dead.settle,
}


def console_routes(site: Site) -> list[BaseRoute]:
    """Return the routes of the console for a site: pages at `/`, never below `/v1`."""
    console = Console(site)
    shows = [_route(console, path, partial(_show, page)) for path, page in PAGES.items()]
    writes = [_route(console, path, partial(_write, page), "POST") for path, page in WRITES.items()]
    return [
        *shows,
        *writes,
        _route(console, door.LOG_IN, _show_door),
        _route(console, door.LOG_IN, _open_door, "POST"),
        _route(console, door.LOG_OUT, _leave, "POST"),
        Route("/static/{name:path}", console.assets.answer),
        BrowserRoute("/{path:path}", _guarded(console, OTHER, _show_nowhere)),
    ]


Answer: TypeAlias = Callable[[Console, Request], Awaitable[Response]]


class BrowserRoute(Route):
    """Matches what a browser asks for as a page; programs, and paths below `/v1`, get problems."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether this route serves a request."""
        path, accept = scope["path"], Headers(scope=scope).get("accept", "")
        is_page = "text/html" in accept and not f"{path}/".startswith("/v1/")
        found, child = super().matches(scope)
        return (found, child) if found is Match.FULL and is_page else (Match.NONE, {})


def _route(console: Console, path: str, answer: Answer, method: str = "GET") -> BaseRoute:
    return Route(path, _guarded(console, path, answer), methods=[method])


def _guarded(
    console: Console, path: str, answer: Answer
) -> Callable[[Request], Awaitable[Response]]:
    async def guarded(request: Request) -> Response:
        request.state.path = path  # this and the token: for the access log
        try:
            _check_host(console, request)
            response = await answer(console, request)
        except Exception as error:
            response = shown_error(console, refusal_of(error), request.query_params)
        for name, value in SECURE.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return guarded


def _check_host(console: Console, request: Request) -> None:
    """Refuse a foreign name for a console that asks for no token: a page could rebind its own."""
    if console.site.tokens.is_open and request.url.hostname not in LOOPBACK:
        text = f"Host: expected localhost, or 127.0.0.1; got {request.url.hostname!r}"
        raise ProblemError(421, "Another name", text)


def _session_of(console: Console, request: Request) -> tuple[Session | None, bool]:
    """Return the session, and whether it is new: of a proxy's bearer, or where none is needed.

    A bearer that is another's than the session's begins a new one: somebody else signed on.
    """
    session, is_new = _found_session(console, request)
    if session is not None:
        request.state.token = session.token.name
    return session, is_new


def _found_session(console: Console, request: Request) -> tuple[Session | None, bool]:
    session = console.sessions.read(request.cookies.get(COOKIE, ""))
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" and (session or not console.site.tokens.is_open):
        return session, False
    token = console.site.tokens.find(secret.strip())
    if session is not None and session.token == token:
        return session, False
    return (None, False) if token is None else (console.sessions.begin(token), True)


async def _show(page: Page, console: Console, request: Request) -> Response:
    session, is_new = _session_of(console, request)
    if session is None:
        return _to_door(request)
    response = await _answered(page, Visit(console, request, session))
    if is_new:
        with_session(response, session, request)
    return response


async def _show_nowhere(console: Console, request: Request) -> Response:
    """Answer what is the address of no page."""
    path = request.url.path
    is_slash = path.rstrip("/") in PAGES
    expected = "one without a slash at its end" if is_slash else "that of a page of the console"
    nowhere = ProblemError(404, "No such page", f"address: expected {expected}; got {path}")
    session, is_new = _session_of(console, request)
    if session is None:
        raise nowhere
    response = Visit(console, request, session).page("error.html", "", 404, error=nowhere)
    return with_session(response, session, request) if is_new else response


async def _write(page: Page, console: Console, request: Request) -> Response:
    """Answer a write, if its form was made for this session on this site."""
    session, _ = _session_of(console, request)
    if session is None:
        return _to_door(request)
    form = await read_form(request, console.site.config)
    session, _ = _session_of(console, request)  # a slow form may outlive its token
    if session is None:
        return _to_door(request)
    visit = Visit(console, request, session)
    visit.form = form
    if not _is_same_origin(request) or not session.proves(visit.form.get("proof", "")):
        text = "The form was made for another session: nothing was changed. Load the page again."
        return visit.page(
            "error.html", "", 403, error=ProblemError(403, "Not sent from here", text)
        )
    return await _answered(page, visit)


async def _answered(page: Page, visit: Visit) -> Response:
    try:
        if not visit.session.token.may("read"):
            text = f"The token {visit.session.token.name} has neither scope read nor operate."
            raise ProblemError(403, "Nothing to see", text)
        return await page(visit)
    except Exception as error:
        told = refusal_of(error)
        return visit.page("error.html", "", told.status, error=told)


def _is_same_origin(request: Request) -> bool:
    """Whether a page of this site sent the form, as the browser says; older ones say less."""
    if site := request.headers.get("sec-fetch-site"):
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    names = (request.headers.get("host"), request.headers.get("x-forwarded-host"))
    try:
        return origin is None or urlsplit(origin).netloc in names
    except ValueError:  # no address, such as http://[::1
        return False


def _to_door(request: Request) -> Response:
    """Send to the log-in; htmx takes the whole page there, not a part of it."""
    address = door.address(request)
    if request.headers.get("hx-request"):
        return Response("", 401, headers={"HX-Redirect": address})
    return RedirectResponse(address, 303)


async def _show_door(console: Console, request: Request) -> Response:
    session, _ = _session_of(console, request)
    return door.show(console, request) if session is None else RedirectResponse("/", 303)


async def _open_door(console: Console, request: Request) -> Response:
    if not _is_same_origin(request):
        raise ProblemError(403, "Not sent from here", "The form was sent by another site.")
    return await door.open_for(console, request)


async def _leave(console: Console, request: Request) -> Response:
    return await _write(door.leave, console, request)
