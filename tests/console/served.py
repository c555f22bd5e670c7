"""The console of a site, served by uvicorn in a thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from duebridge.console.routes import console_routes
from duebridge.http.app import build_app
from duebridge.http.site import Site
from duebridge.http.tokens import NoTokens, TokenFile, digest_of
from tests.console.scene import Scene
from tests.support.servers import free_port, wait_until

OPERATE, READ = "secret-of-the-operator", "secret-of-the-reader"
SCHEDULE = "secret-of-a-program"


def tokens_text() -> str:
    """Three tokens: one may do everything, one may read one route, one may only schedule."""
    return f"""\
- {{name: maria, sha256: {digest_of(OPERATE)}, scopes: [operate]}}
- {{name: audit, sha256: {digest_of(READ)}, scopes: [read], routes: ["cart-*", "trial-*"]}}
- {{name: shop, sha256: {digest_of(SCHEDULE)}, scopes: [schedule]}}
"""


@contextmanager
def served_console(scene: Scene, tokens: TokenFile | None = None) -> Iterator[str]:
    """Give the address of the console; everyone may do everything without tokens."""
    site = Site(scene.config, scene.connection, tokens or NoTokens())
    port = free_port()
    app = build_app(site, console_routes(site))
    config = uvicorn.Config(app, "127.0.0.1", port, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the console")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        site.close()


def token_file(home: Path) -> TokenFile:
    """Return the tokens of a file that a test may rewrite."""
    file = home / "tokens.yaml"
    file.write_text(tokens_text())
    return TokenFile(file.read_text)
