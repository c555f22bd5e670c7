"""A real `duebridge serve` on a real Redis, and clients of it."""

import json
import os
import secrets
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.http.tokens import digest_of
from duebridge.receipt import EnvelopeDetails
from duebridge.store.delay_store import DelayStore
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import open_connection
from duebridge.store.wire.replies import Entry
from tests.support.command import ENVIRONMENT, FORKS, PROGRAM
from tests.support.forks import Fork
from tests.support.servers import redis_server, wait_until

UNUSED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # else each client reads all certificates
ORDERS = "/v1/routes/orders/envelopes"
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
SECRETS = {"all": "all-secret", "shop": "shop-secret", "viewer": "viewer-secret"}
TOKENS = [
    {"name": "all", "scopes": ["schedule", "operate"]},
    {"name": "shop", "scopes": ["schedule", "read"], "routes": ["order*"]},
    {"name": "viewer", "scopes": ["read"]},
]
CONFIG: dict[str, Any] = {
    "version": 1,
    "brokers": {
        "here": {"type": "memory"},
        "kafka": {"type": "kafka", "bootstrap_servers": ["localhost:1"]},
        "rabbit": {"type": "rabbitmq", "url": "amqp://localhost:1"},
    },
    "routes": {
        "orders": {"target": {"broker": "here", "topic": "t"}, "max_delay": "30d", "shards": 3},
        "small": {"target": {"broker": "here", "topic": "s"}, "max_body": "1KiB"},
        "topic": {"target": {"broker": "kafka", "topic": "k"}},
        "exchange": {"target": {"broker": "rabbit", "exchange": "e", "routing_key": "k"}},
    },
}


def token_lines(tokens: list[dict[str, Any]]) -> str:
    """The text of a file of tokens, JSON being YAML."""
    return json.dumps([{**each, "sha256": digest_of(SECRETS[each["name"]])} for each in tokens])


class Served:
    """A server process, and the store behind it."""

    def __init__(self, process: "Fork | subprocess.Popen[bytes]", home: Path) -> None:
        self.process = process
        self.home = home
        self.config: Config = load_config(home / "duebridge.yaml")

    def logged(self, event: str = "") -> list[dict[str, Any]]:
        """The lines of its log so far, or those of one event."""
        whole, _, _ = (self.home / "log").read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if event in ("", line["event"])]

    @property
    def port(self) -> int:
        return int(self.logged("serving")[0]["port"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, name: str | None = "all", **given: Any) -> httpx.Client:
        headers = {} if name is None else {"Authorization": f"Bearer {SECRETS[name]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=UNUSED, **given)

    def stored(self, route: str = "orders") -> dict[str, EnvelopeDetails]:
        """Every envelope of a route that waits, by its id."""
        connection = open_connection(self.config.store.url)
        try:
            shards = self.config.routes[route].shards
            store = RouteStore(connection, self.config.store.namespace, route, shards)
            entries = (entry for shard in store.shards for entry in waiting(shard))
            return {entry.id: EnvelopeDetails.of(route, entry) for entry in entries}
        finally:
            connection.close()

    def bodies(self) -> list[str]:
        """The text of every envelope of `orders` that waits, sorted."""
        return sorted((each.body or b"").decode() for each in self.stored().values())


def waiting(store: DelayStore) -> Iterator[Entry]:
    """Every pending envelope of a shard, page by page."""
    page = store.list("pending", limit=1000)
    yield from page.entries
    while page.cursor is not None:
        page = store.list("pending", limit=1000, cursor=page.cursor)
        yield from page.entries


@contextmanager
def serving(
    home: Path,
    url: str,
    config: Mapping[str, Any] = CONFIG,
    *,
    is_afresh: bool = False,
    **serve: Any,
) -> Iterator[Served]:
    """Run a server until the end, by an interpreter of its own or a fork; it logs to `log`."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "tokens.yaml").write_text(token_lines(TOKENS))
    block = {"listen": "127.0.0.1:0", "tokens": f"${{file:{home}/tokens.yaml}}", **serve}
    block = {name: value for name, value in block.items() if value is not None}
    whole = {**config, "store": {"url": url, "namespace": home.name}, "serve": block}
    (home / "duebridge.yaml").write_text(json.dumps(whole))
    process = _started(home, is_afresh=is_afresh)
    try:
        served = Served(process, home)
        wait_until(
            lambda: process.poll() is not None or served.logged("serving"), f"see {home}/log"
        )
        assert process.poll() is None, (home / "log").read_text()
        yield served
    finally:
        process.kill()
        process.wait()


def _started(home: Path, *, is_afresh: bool) -> "Fork | subprocess.Popen[bytes]":
    environment = {**ENVIRONMENT, "NO_PROXY": "*"}
    if is_afresh:
        with (home / "log").open("wb") as log:
            return subprocess.Popen([PROGRAM, "serve"], cwd=home, env=environment, stderr=log)
    streams = home / f"streams-{secrets.token_hex(4)}"  # it may be the home of one before
    process = FORKS.start(["serve"], streams, home, environment)
    (home / "log").unlink(missing_ok=True)
    (home / "log").symlink_to(streams / "err")
    return process


@contextmanager
def store_server(home: Path) -> Iterator[int]:
    """Run a Redis that is fit to hold envelopes; gives its port."""
    home.mkdir(exist_ok=True)
    with redis_server(home, "--appendonly", "yes") as port:
        yield port


os.environ.setdefault("NO_PROXY", "*")
