"""Connections: offers of other protocols, trailers, and how each connection comes to its end."""

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from duebridge.http.access_log import AccessLog
from duebridge.http.connection import guarded, parting
from duebridge.http.connection.guarded import HEAD_BYTES, GuardedProtocol
from tests.support.serving import ORDERS, SECRETS, Served

HOST = "Host: localhost\r\n"
HEAD = f"{HOST}Authorization: Bearer {SECRETS['all']}\r\n"
OFFER = (
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
)
POST = f"POST {ORDERS} HTTP/1.1\r\n"
CHUNKED = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = "ce-specversion: 1.0\r\nce-type: t\r\nce-source: s\r\nce-delay: 1h\r\nce-id: "
SOON_S, WITHIN_S = 0.2, 20.0
LARGE, END = bytes(16 << 20), b"the end\r\n0\r\n\r\n"  # more than a kernel takes unread

Application: TypeAlias = Callable[..., Awaitable[None]]


def json_post(name: str, headers: str = HEAD) -> bytes:
    body = json.dumps({"id": name, "body": name, "delay": "1h"})
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (POST + headers + kind + body).encode()


def connected(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), WITHIN_S)


def rest(client: socket.socket) -> bytes:
    """What the server sends until it ends the connection."""
    answer = b""
    while got := client.recv(65536):
        answer += got
    return answer


def statuses(answer: bytes) -> list[bytes]:
    return [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_offer_of_another_protocol_is_ignored(served: Served, step: int) -> None:
    """Each request keeps its body, however the packets fall, and those behind it are read."""
    lines = b"".join(
        json.dumps({"id": f"h2c-{step}-{name}", "body": "x", "delay": "1h"}).encode() + b"\n"
        for name in "ab"
    )
    kind = f"Content-Type: application/x-ndjson\r\nContent-Length: {len(lines)}\r\n\r\n"
    sent = (POST + HEAD + OFFER + kind).encode() + lines
    sent += json_post(f"h2c-{step}-json", HEAD + OFFER)
    sent += f"GET /livez HTTP/1.1\r\n{HOST}{OFFER}\r\n".encode()
    with connected(served) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for first in range(0, len(sent), step):
            client.sendall(sent[first : first + step])
        client.shutdown(socket.SHUT_WR)
        assert statuses(rest(client)) == [b"200", b"201", b"200"]
    stored = served.stored()
    assert {f"h2c-{step}-a", f"h2c-{step}-b"} <= stored.keys()
    assert stored[f"h2c-{step}-json"].body == f"h2c-{step}-json".encode()


def test_event_with_an_offer_keeps_its_body(served: Served) -> None:
    kind = f"{EVENT}h2c-event\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n"
    with connected(served) as client:
        client.sendall((POST + HEAD + OFFER + kind).encode() + b"hello")
        answer = client.recv(65536)
    assert answer.startswith(b"HTTP/1.1 201 "), answer
    assert [each.body for each in served.stored().values() if each.body == b"hello"] == [b"hello"]


def test_body_behind_an_offer_is_no_request(served: Served) -> None:
    body = f"DELETE {ORDERS}/victim HTTP/1.1\r\n{HEAD}\r\n"
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with connected(served) as client:
        client.sendall((POST + HEAD + OFFER + kind).encode())
        client.sendall(body.encode())
        client.shutdown(socket.SHUT_WR)
        assert len(statuses(rest(client))) == 1


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Post {
    public static void main(String[] given) throws Exception {
        var client = HttpClient.newHttpClient();
        for (int i = 0; i < 2; i++) {
            var body = "{'id': 'java-N', 'body': 'x', 'delay': '1h'}";
            body = body.replace("N", "" + i).replace('\\'', '"');
            var request = HttpRequest.newBuilder(URI.create(given[0]))
                .header("Authorization", "Bearer " + given[1])
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body)).build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode());
        }
    }
}
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="no java")
def test_client_of_java_is_served(served: Served, tmp_path: Path) -> None:
    (tmp_path / "Post.java").write_text(JAVA)
    command = ["java", "Post.java", served.url + ORDERS, SECRETS["all"]]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["201", "201"], done.stderr


@pytest.mark.parametrize(("headers", "status"), [(HOST, b"401"), (HEAD, b"431")])
@pytest.mark.parametrize("unit", [b"x: yyyyyyyyyyyyyyyyyy\r\n", b"v" * 22])
def test_trailer_that_is_too_long_ends_the_connection(
    served: Served, headers: str, status: bytes, unit: bytes
) -> None:
    with connected(served) as client:
        client.sendall((POST + headers + CHUNKED).encode())
        answer = client.recv(65536) if status == b"401" else b""
        client.sendall(b"0\r\nz: ")
        for _ in range(40):  # what comes in one piece with the head is not counted
            client.sendall(unit * (HEAD_BYTES // 2 // len(unit)))
        assert statuses(answer + rest(client)) == [status]


def test_client_that_still_sends_sees_why_its_body_is_refused(served: Served) -> None:
    head = POST + HEAD + "Content-Type: application/json\r\nContent-Length: 99000000\r\n\r\n"
    with connected(served) as client:
        client.sendall(head.encode())
        for _ in range(50):
            client.sendall(b"x" * 65536)
        assert rest(client).startswith(b"HTTP/1.1 413 ")


def test_connection_is_kept_once_a_body_that_was_answered_early_has_come(served: Served) -> None:
    with connected(served) as client:
        client.sendall((POST + HOST + "Content-Length: 5\r\n\r\n").encode())
        assert statuses(client.recv(65536)) == [b"401"]
        client.sendall(b"hello" + json_post("behind-an-early-answer"))
        assert statuses(client.recv(65536)) == [b"201"]


def test_client_that_ends_its_side_gets_its_answers(served: Served) -> None:
    with connected(served) as client:
        client.sendall(json_post("half-1") + json_post("half-2") + json_post("half-3")[:-5])
        client.shutdown(socket.SHUT_WR)
        assert statuses(rest(client)) == [b"201", b"201"]
    assert {"half-1", "half-2"} <= served.stored().keys()
    assert "half-3" not in served.stored()


async def early(_: Scope, __: Receive, send: Send) -> None:
    """Answer without a look at the body."""
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


async def endless(_: Scope, __: Receive, send: Send) -> None:
    """Answer for ever."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await asyncio.sleep(0)


async def both_ways(_: Scope, receive: Receive, send: Send) -> None:
    """Answer before the body has come."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LARGE, "more_body": True})
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    assert (await receive())["body"] == b"hello"
    await send({"type": "http.response.body", "body": b"the end"})


async def given_up(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer until the client has not read for a while, and leave it at that."""
    try:
        await asyncio.wait_for(endless(scope, receive, send), SOON_S)
    except TimeoutError:
        return


@asynccontextmanager
async def one_client(
    app: Application, read_within_s: float
) -> AsyncIterator[tuple[socket.socket, asyncio.Event, set[Any]]]:
    """Connect to a server of this application; the event tells that it lost the connection.

    Also gives the connections that the server has.
    """
    state, loop, gone = ServerState(), asyncio.get_running_loop(), asyncio.Event()

    class Watched(GuardedProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            assert not state.connections
            gone.set()

    config = uvicorn.Config(app, ws="none", lifespan="off", timeout_keep_alive=1, log_config=None)
    given = {"read_within_s": read_within_s, "access_log": AccessLog()}
    made = partial(Watched, config, state, {}, **given)
    server = await loop.create_server(made, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname()[:2], WITHIN_S)
    client.setblocking(False)
    try:
        yield client, gone, state.connections
    finally:
        client.close()
        server.close()


async def connections_end(app: Application, read_within_s: float, *parts: bytes) -> None:
    """Send to a server of this application, read little, and wait until it has no connection."""
    loop = asyncio.get_running_loop()
    async with one_client(app, read_within_s) as (client, gone, _):
        for part in parts:
            await loop.sock_sendall(client, part)
            await loop.sock_recv(client, 10)
        await loop.sock_sendall(client, b"\r\n")
        await asyncio.wait_for(gone.wait(), WITHIN_S)


async def late_reading() -> bytes:
    """Send a body once its answer was left unread for long, and read all of it."""
    loop, answer = asyncio.get_running_loop(), b""
    async with one_client(both_ways, SOON_S) as (client, gone, connections):
        await loop.sock_sendall(client, b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
        for _ in range(2):
            with suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), 3 * SOON_S)
            for each in connections:  # from now on it waits longer: a busy machine reads late, too
                each.transport._read_within_s = WITHIN_S
        await loop.sock_sendall(client, b"hello")
        while not answer.endswith(END):
            got = await asyncio.wait_for(loop.sock_recv(client, 1 << 20), WITHIN_S)
            assert got, f"the connection ended after {len(answer)} bytes"
            answer += got
    return answer


def test_client_that_sends_before_it_reads_keeps_its_connection() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert LARGE in runner.run(late_reading())


@pytest.mark.parametrize(
    ("app", "request_"),
    [
        (early, b"GET / HTTP/1.1\r\n\r\n"),
        (early, b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n"),
        (endless, b"GET / HTTP/1.1\r\n\r\n"),
        (given_up, b"GET / HTTP/1.1\r\n\r\n"),
    ],
    ids=["empty line behind a request", "body behind its answer", "unread", "unread, given up"],
)
def test_connection_that_nobody_uses_is_ended(
    monkeypatch: pytest.MonkeyPatch, app: Application, request_: bytes
) -> None:
    monkeypatch.setattr(guarded, "REST_WITHIN_S", SOON_S)
    monkeypatch.setattr(parting, "LINGER_S", SOON_S)
    read_within_s = SOON_S if app is endless else WITHIN_S
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(connections_end(app, read_within_s, request_))


async def answered(part: bytes) -> bytes:
    """Send this and no more; return what comes until the server ends the connection."""
    loop, answer = asyncio.get_running_loop(), b""
    async with one_client(early, WITHIN_S) as (client, _, _):
        await loop.sock_sendall(client, part)
        while got := await asyncio.wait_for(loop.sock_recv(client, 65536), WITHIN_S):
            answer += got
    return answer


def test_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "HEAD_WITHIN_S", SOON_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(answered(b"GET / HT")) == b""
        second = runner.run(answered(b"GET / HTTP/1.1\r\n\r\nGET / HT"))
        assert second.endswith(b"\r\n\r\nno"), "the whole request was answered"
