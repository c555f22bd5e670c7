"""One look at the console: who looks, what they may see, and the page that answers."""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from duebridge.console import words
from duebridge.console.assets import Assets
from duebridge.console.forms import Form
from duebridge.console.previews import fields_of, readable_value
from duebridge.console.sessions import COOKIE, LASTS_S, Session, Sessions
from duebridge.errors import (
    BridgeError,
    EnvelopeError,
    StoreError,
    StoreUnavailable,
    UnknownRoute,
)
from duebridge.http.problems import ProblemError
from duebridge.http.site import Site

T = TypeVar("T")
TEMPLATES = Path(__file__).parent / "templates"
PATHS = {
    "overview": "/",
    "route": "/route",
    "search": "/search",
    "envelope": "/envelope",
    "due": "/due",
    "dead": "/dead",
    "workers": "/workers",
    "configuration": "/configuration",
}


def link(page: str, **query: object) -> str:
    """Return the address of a page; names and ids are in the query, where they may be anything."""
    given = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return PATHS[page] + (f"?{urlencode(given, errors='surrogatepass')}" if given else "")


class Console:
    """The site, sessions and templates that every visit shares."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.assets = Assets()
        self.sessions = Sessions(site.tokens, site.now_ms)
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= words.FILTERS
        self._templates.filters |= {"readable": readable_value, "fields": fields_of}
        self._templates.globals |= {
            "link": link,
            "asset": self.assets.address,
            "plural": words.plural,
            "version": version("duebridge"),
        }

    def render(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page."""
        return HTMLResponse(self._templates.get_template(template).render(values), status)


class Visit:
    """A request of a person with a session."""

    def __init__(self, console: Console, request: Request, session: Session) -> None:
        self.console = console
        self.request = request
        self.session = session
        self.site = console.site
        self.query = request.query_params
        self.form = Form()

    async def run(self, call: Callable[[], T]) -> T:
        """Run a blocking call; the journal names the user for its writes."""
        return await self.site.run(call, self.session.token)

    def may_read(self, route: str) -> bool:
        """Whether the person may see a route."""
        return self.session.token.may("read", route)

    def may_operate(self, route: str) -> bool:
        """Whether the person may change a route's envelopes."""
        return self.session.token.may("operate", route)

    def readable(self, route: str) -> str:
        """Return the route's name; raises `UnknownRoute` for one that the person may not see."""
        if not route or not self.may_read(route):
            raise UnknownRoute(f"route: expected one that you may see; got {route!r}")
        return route

    def operable(self, route: str) -> str:
        """Return the route's name; raises `ProblemError` for one that the person may not change."""
        if not self.may_operate(self.readable(route)):
            name = self.session.token.name
            text = f"The token {name} may look at route {route}, and change nothing."
            raise ProblemError(403, "Read only", text)
        return route

    def route_names(self) -> list[str]:
        """Return the routes that the person may see; raises `StoreError`."""
        return [name for name in self.site.operator.route_names() if self.may_read(name)]

    def page(self, template: str, here: str, status: int = 200, **values: Any) -> Response:
        """Return a page with what all pages show."""
        common = {
            "here": here,
            "token": self.session.token,
            "is_open": self.site.tokens.is_open,
            "proof": self.session.proof,
            "may_operate": self.may_operate,
            "did": self.query.get("did", ""),
            "path": self.request.url.path,
        }
        return self.console.render(template, status, **common, **values)

    def go(self, page: str, **query: object) -> Response:
        """Send the browser to a page, after a write."""
        return RedirectResponse(link(page, **query), 303)


def with_session(response: Response, session: Session, request: Request) -> Response:
    """Let the browser keep a session, and show it over TLS alone where it came over TLS."""
    schemes = (request.url.scheme, request.headers.get("x-forwarded-proto"))
    response.set_cookie(
        COOKIE,
        session.cookie,
        max_age=LASTS_S,
        path="/",
        secure="https" in schemes,
        httponly=True,
        samesite="strict",
    )
    return response


def refusal_of(error: Exception) -> ProblemError:
    """Return the page's text for an error; raises the error again if it is a defect."""
    match error:
        case ProblemError():
            return error
        case UnknownRoute():
            text = "Neither the configuration nor the store has it, or this token may not see it."
            return ProblemError(404, "No such route", text)
        case EnvelopeError():
            return ProblemError(422, "That does not work", str(error))
        case StoreUnavailable():
            return ProblemError(503, "The delay store is away", str(error))
        case StoreError():
            return ProblemError(503, "The delay store refused", str(error))
        case BridgeError():
            return ProblemError(500, "That failed", str(error))
    raise error


def shown_error(console: Console, error: ProblemError, query: Mapping[str, str]) -> Response:
    """Return the page of an error for who has no session yet."""
    next_ = query.get("next", "")
    response = console.render("bare.html", error.status, error=error, next=next_)
    response.headers.update(error.headers)
    return response
