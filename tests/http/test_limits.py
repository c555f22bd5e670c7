"""Limits: slow bodies, long heads, many connections, a rate."""

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support.servers import wait_until
from tests.support.serving import JSON, ORDERS, SECRETS, Served, serving

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
RATE = 5
HEAD = f"Host: localhost\r\nAuthorization: Bearer {SECRETS['all']}\r\n"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, store_url: str) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("strict")
    with serving(home, store_url, rate=RATE, connections=4, request_timeout="300ms") as served:
        yield served


def talk(served: Served, *parts: bytes) -> bytes:
    """What the server answers until it ends the connection."""
    with socket.create_connection(("127.0.0.1", served.port), 60) as client:
        for part in parts:
            client.sendall(part)
        answer = b""
        while got := client.recv(65536):
            answer += got
    return answer


def problem_of(answer: bytes, status: int) -> dict[str, Any]:
    """The problem that an answer is, after which the server ends the connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *headers = head.lower().split(b"\r\n")
    assert line.startswith(f"http/1.1 {status} ".encode()), answer
    assert {b"content-type: application/problem+json", b"connection: close"} <= set(headers)
    found: dict[str, Any] = json.loads(body)
    assert found["status"] == status
    return found


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_body_that_does_not_come_is_not_waited_for(strict: Served, kind: str) -> None:
    head = f"POST {ORDERS} HTTP/1.1\r\n{HEAD}Content-Type: {kind}\r\nContent-Length: 100\r\n\r\n"
    answer = talk(strict, head.encode() + b'{"body')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"expected it within 0.3s" in answer


def test_length_in_many_digits_is_read_as_a_number(served: Served) -> None:
    body = b'{"body": "x", "delay": "1h"}'
    head = f"POST {ORDERS} HTTP/1.1\r\n{HEAD}Content-Type: application/json\r\n"
    head += f"Connection: close\r\nContent-Length: {'0' * 5000}{len(body)}\r\n\r\n"
    assert talk(served, head.encode() + body).startswith(b"HTTP/1.1 201 ")


def test_form_that_does_not_come_is_not_waited_for(strict: Served) -> None:
    """Anybody may send one to the log-in, without a token."""
    answer = talk(strict, b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"expected it within 0.3s" in answer


def refused_early(served: Served) -> Counter[int]:
    """How often each status is in the log of requests that no operation got to see."""
    lines = served.logged("http")
    return Counter(line["status"] for line in lines if line["path"] == "other")


def counted_early(served: Served, status: int) -> float:
    with served.client() as client:
        text = client.get("/metrics").text
    name = f'duebridge_http_requests_total{{method="other",path="other",status="{status}"}} '
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


TOO_LONG = "head of at most 32768 bytes"


@pytest.mark.parametrize(
    ("status", "sent", "said"),
    [
        (400, b"\x16\x03\x01 hello\r\n\r\n", "expected a request of HTTP/1.1"),
        (431, b"GET /" + b"x" * 40_000, TOO_LONG),
        (431, b"GET /v1/routes HTTP/1.1\r\nx-long: " + b"x" * 40_000 + b"\r\n\r\n", TOO_LONG),
        (431, b"GET /v1/routes HTTP/1.1\r\n" + b"x-many: 1\r\n" * 5000 + b"\r\n", TOO_LONG),
    ],
    ids=["no HTTP", "long path", "long field", "many fields"],
)
def test_refused_head_is_told_logged_and_counted(
    served: Served, status: int, sent: bytes, said: str
) -> None:
    counted = counted_early(served, status)
    assert said in problem_of(talk(served, sent), status)["detail"]
    assert counted_early(served, status) == counted + 1
    wait_until(lambda: refused_early(served)[status] == counted + 1, "its line")


@contextmanager
def used_up(served: Served) -> Iterator[socket.socket]:
    """Hold all the connections that the server may have; gives one of them."""
    with ExitStack() as stack:
        address = ("127.0.0.1", served.port)
        idle = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(4)]
        yield idle[0]


def test_connections_beyond_the_limit_are_told_to_come_later_logged_and_counted(
    strict: Served,
) -> None:
    counted = counted_early(strict, 503)
    with used_up(strict) as idle:
        for path in (b"/v1/routes", b"/readyz"):
            answer = talk(strict, LIVEZ.replace(b"/livez", path))
            assert problem_of(answer, 503)["title"] == "Too many connections"
            assert b"\r\nretry-after: 1\r\n" in answer.lower()
        idle.sendall(LIVEZ)
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert counted_early(strict, 503) == counted + 2
    wait_until(lambda: refused_early(strict)[503] == counted + 2, "their lines")


def test_server_whose_connections_are_used_up_is_alive(strict: Served) -> None:
    """A probe that failed then would have every server restarted, and end what it serves."""
    with used_up(strict) as idle:
        idle.sendall(LIVEZ)
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 "), "all four are the server's"
        answer = talk(strict, LIVEZ)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\nok")


def test_rate_of_a_token_is_kept(strict: Served) -> None:
    began = time.monotonic()
    with strict.client("shop") as client:
        answers = [
            client.post(ORDERS, content=b'{"body": "x", "delay": "1h"}', headers=JSON)
            for _ in range(20)
        ]
    took_s = time.monotonic() - began
    taken = [each for each in answers if each.status_code == 201]
    refused = [each for each in answers if each.status_code == 429]
    assert len(taken) + len(refused) == 20
    assert RATE <= len(taken) <= RATE * (1 + took_s), "a burst of a second, and then the rate"
    for each in refused[:1]:  # a machine that is slower than the rate is refused nothing
        assert int(each.headers["retry-after"]) >= 1
        assert each.headers["content-type"] == "application/problem+json"
