"""`duebridge serve` as a process: what it needs to start, what ends it, and several at once."""

import asyncio
import json
import os
import pty
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from structlog.testing import capture_logs

from duebridge.config.models import Config
from duebridge.config.serve import ListenAddress
from duebridge.http.app import build_app
from duebridge.http.process import listen
from duebridge.http.site import Site
from duebridge.http.tokens import NoTokens
from duebridge.store.server.connection import open_connection
from tests.support.command import PROGRAM, Command, wait_until
from tests.support.servers import free_port, listens, loopbacks
from tests.support.serving import CONFIG, ORDERS, Served, serving


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        ({"tokens": "${file:/nowhere/tokens.yaml}"}, "serve.tokens: file /nowhere/tokens.yaml"),
        ({"tokens": "- broken"}, "serve.tokens: expected a YAML list"),
        ({"tokens": "[]"}, "serve.tokens: expected at least one token; got an empty list"),
        ({"listen": "0.0.0.0:0"}, "expected tokens where it listens beyond this machine"),
        ({"listen": "127.0.0.1:{port}"}, "serve.listen: cannot listen on 127.0.0.1:{port}"),
    ],
)
def test_server_that_cannot_start_says_why(
    duebridge: Command, served: Served, serve: dict[str, str], said: str
) -> None:
    port = str(served.port)
    block = {name: value.replace("{port}", port) for name, value in serve.items()}
    whole = {**CONFIG, "store": {"url": duebridge.url}, "serve": block}
    duebridge.file.write_text(json.dumps(whole))
    done = duebridge("serve")
    assert (done.code, said.replace("{port}", port) in done.err) == (2, True), done.err


@pytest.mark.parametrize("client", loopbacks())
def test_listen_at_every_address_hears_ipv6_and_ipv4(client: str) -> None:
    with listen(ListenAddress("::", 0)) as listener:
        socket.create_connection((client, listener.getsockname()[1]), timeout=10).close()


def test_listen_at_every_address_without_ipv6_hears_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chart has it listen there on every machine."""
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen(ListenAddress("::", 0)) as listener:
        assert listener.family == socket.AF_INET
        socket.create_connection(("127.0.0.1", listener.getsockname()[1]), timeout=10).close()


def test_serve_at_sighup_serves_on_until_its_terminal_is_closed(duebridge: Command) -> None:
    port = free_port()
    serve = {"listen": f"127.0.0.1:{port}"}
    whole = {**CONFIG, "store": {"url": duebridge.url}, "serve": serve}
    duebridge.file.write_text(json.dumps(whole))
    ours, theirs = pty.openpty()
    with subprocess.Popen([PROGRAM, "serve"], cwd=duebridge.home, stderr=theirs) as process:
        os.close(theirs)
        try:
            wait_until(lambda: listens(port), "duebridge serve")
            process.send_signal(signal.SIGHUP)
            assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60).status_code == 200
            os.close(ours)
            process.send_signal(signal.SIGHUP)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_servers_beside_each_other_are_one(tmp_path: Path, store_url: str) -> None:
    homes = [tmp_path / place / "twins" for place in "ab"]  # one namespace
    with serving(homes[0], store_url) as one, serving(homes[1], store_url) as two:
        assert one.port != two.port
        key = {"Idempotency-Key": "twins"}
        given = {"body": "x", "delay": "1h"}
        with one.client() as first, two.client() as second:
            receipts = [each.post(ORDERS, json=given, headers=key) for each in (first, second)]
            assert receipts[0].json() == receipts[1].json()
            name = receipts[0].json()["id"]
            assert second.delete(f"{ORDERS}/{name}", headers=key).json()["status"] == "cancelled"
            assert first.delete(f"{ORDERS}/{name}", headers=key).json()["status"] == "cancelled"
            assert len(one.stored()) == 0


def test_defect_is_a_problem_that_tells_nothing_of_the_request(store_url: str) -> None:
    async def fail(_: Request) -> Response:
        raise RuntimeError("canary")

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/defect")

    connection = open_connection(store_url)
    site = Site(Config.model_validate(CONFIG), connection, NoTokens())
    app = build_app(site, [Route("/defect", fail)])
    with capture_logs() as logged:
        answer = asyncio.run(get())
    site.close()
    connection.close()
    assert (answer.status_code, answer.json()["status"]) == (500, 500)
    assert "canary" not in f"{answer.text}{logged}"
    assert [(each["event"], each["error"]) for each in logged] == [("http_defect", "RuntimeError")]


def test_name_of_a_path_is_shown_by_its_readable_form(served: Served) -> None:
    paths = httpx.get(f"{served.url}/openapi.json").json()["paths"]
    assert f"{ORDERS.replace('orders', '{route}')}/{{id}}" in paths
