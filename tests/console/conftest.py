"""One browser, one store and one server for all tests of the console; a person each test."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.console.browser import open_browser
from tests.console.scene import Scene, filled_scene
from tests.console.served import OPERATE, READ, served_console, token_file
from tests.support.checkout import downloaded

Sessions = dict[str, dict[str, str]]  # cookies by token

WITHIN_MS = 30_000  # a deadline for a busy machine, not a measure
expect.set_options(timeout=WITHIN_MS)


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with filled_scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(scope="session")
def tokens_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="session")
def address(scene: Scene, tokens_home: Path) -> Iterator[str]:
    """The console with tokens."""
    with served_console(scene, token_file(tokens_home)) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser of one module: while it is open no other test of the process can run a loop."""
    with open_browser() as opened:
        yield opened


class Person:
    """Somebody at a browser, who notes everything that its console complains of."""

    def __init__(
        self, browser: Browser, address: str, context: BrowserContext | None = None, **options: Any
    ) -> None:
        self.address = address
        self.context = context or browser.new_context(base_url=address, **options)
        self.complaints: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WITHIN_MS)
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def log_in(self, secret: str) -> Page:
        self.page.goto("/login")
        self.page.get_by_label("Token").fill(secret)
        with self.page.expect_navigation():  # to its end: its scripts have run
            self.page.get_by_role("button", name="Log in").click()
        return self.page

    def resume(self, cookies: dict[str, str]) -> Page:
        """Open the first page in a session that somebody began elsewhere."""
        self.context.add_cookies(
            [{"name": name, "value": value, "url": self.address} for name, value in cookies.items()]
        )
        self.page.goto("/")
        return self.page


@pytest.fixture
def person(browser: Browser, address: str) -> Iterator[Person]:
    """Nobody in particular yet; in the end the browser's console has to be empty."""
    somebody = Person(browser, address)
    yield somebody
    somebody.context.close()
    assert somebody.complaints == []


@pytest.fixture(scope="session")
def sessions(address: str) -> Sessions:
    """The cookies of a session of each token, which a person has without the form."""
    found: Sessions = {}
    for secret in (OPERATE, READ):
        with httpx.Client(base_url=address) as client:
            client.post("/login", data={"token": secret})
            found[secret] = dict(client.cookies)
    return found


@pytest.fixture(scope="module")
def shared_context(browser: Browser, address: str) -> Iterator[BrowserContext]:
    """Where those are who come with a session: each context more starts a process."""
    context = browser.new_context(base_url=address)
    yield context
    context.close()


@pytest.fixture
def visitor(browser: Browser, address: str, shared_context: BrowserContext) -> Iterator[Person]:
    """Somebody with a page of the own, who leaves nothing behind but what the browser has read."""
    somebody = Person(browser, address, shared_context)
    yield somebody
    somebody.page.evaluate("localStorage.clear()")
    somebody.page.close()
    shared_context.clear_cookies()
    assert somebody.complaints == []


@pytest.fixture
def operator(visitor: Person, sessions: Sessions) -> Page:
    """The page of who may do everything."""
    return visitor.resume(sessions[OPERATE])


@pytest.fixture
def reader(visitor: Person, sessions: Sessions) -> Page:
    """The page of who may look at two of the routes."""
    return visitor.resume(sessions[READ])


@pytest.fixture(scope="session")
def axe() -> Callable[..., list[str]]:
    """Return a function that says what keeps people from using a page: by all rules, or some."""
    source = Path(downloaded("axe")).read_text()

    def violations(page: Page, *rules: str) -> list[str]:
        page.evaluate(source)
        wanted = {"runOnly": rules} if rules else {"rules": {"target-size": {"enabled": True}}}
        options = {"resultTypes": ["violations"], **wanted}
        found = page.evaluate("options => axe.run(options)", options)["violations"]
        return [
            f"{one['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for one in found
            for node in one["nodes"]
        ]

    return violations


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    """Somebody without a browser."""
    with httpx.Client(base_url=address, timeout=WITHIN_MS / 1000) as opened:
        yield opened


def log_in(client: httpx.Client, secret: str) -> str:
    """Log in, and return the proof that forms carry."""
    assert client.post("/login", data={"token": secret}).status_code == 303
    found = re.search(r'name="proof" value="([^"]+)"', client.get("/search").text)
    assert found is not None
    return found[1]
