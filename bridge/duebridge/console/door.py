"""The log-in: a token's secret becomes a session; the secret itself is not kept."""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duebridge.console.forms import read_form, text_of
from duebridge.console.sessions import COOKIE
from duebridge.console.visit import Console, Visit, with_session

LOG_IN, LOG_OUT = "/login", "/logout"
MOST_SECRET = 1000  # characters


def address(request: Request) -> str:
    """Return the log-in's address, which knows the page that was asked for."""
    if request.method != "GET":
        return LOG_IN
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return LOG_IN if asked == "/" else f"{LOG_IN}?next={quote(asked, safe='/')}"


def show(console: Console, request: Request) -> Response:
    """Return the form."""
    asked = _own_page(request.query_params.get("next", ""))
    return console.render("login.html", next=asked, is_wrong=False)


async def open_for(console: Console, request: Request) -> Response:
    """Begin a session for who has a token; the same answer for every wrong one."""
    form = await read_form(request, console.site.config)
    asked = _own_page(text_of(form, "next"))
    token = console.site.tokens.find(text_of(form, "token")[:MOST_SECRET])
    if token is None:
        return console.render("login.html", 401, next=asked, is_wrong=True)
    session = console.sessions.begin(token)
    response = RedirectResponse(asked or "/", 303)
    return with_session(response, session, request)


async def leave(_: Visit) -> Response:
    """End the session in this browser."""
    response = RedirectResponse(LOG_IN, 303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


def _own_page(asked: str) -> str:
    """Return a path of this site; "" for anything that a browser takes for another site."""
    is_own = asked.startswith("/") and not asked.startswith(("//", "/\\"))
    return asked if is_own and "\\" not in asked and asked.isprintable() else ""
