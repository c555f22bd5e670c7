"""Faults: a store that freezes, dies or is full while requests are on their way, and a restart."""

import json
import random
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
import redis

from tests.http.faults.posting import ORDERS, posting
from tests.support.network.proxy import proxied
from tests.support.redis.redis_node import RedisNode
from tests.support.servers import listens, wait_until
from tests.support.serving import NDJSON, SECRETS, Served, serving

CALLS = 'duebridge_store_call_seconds_count{script="schedule"}'
Call: TypeAlias = tuple[str, str, dict[str, Any]]
CONNECTED = ("01", "08")  # in /proc/net/tcp: established; also left by the client


@pytest.fixture
def alone(own_redis: RedisNode, tmp_path: Path) -> Iterator[Served]:
    """A server on that store."""
    with serving(tmp_path / "alone", f"redis://127.0.0.1:{own_redis.port}") as served:
        yield served


@pytest.mark.parametrize("fault", ["freeze", "kill"])
def test_store_that_fails_loses_nothing_and_stores_nothing_twice(
    alone: Served, own_redis: RedisNode, fault: str
) -> None:
    with posting(alone, at_least=100) as posted:
        wait_until(lambda: len(posted.answers) > 20, "some answers")
        if fault == "kill":
            own_redis.kill()
        else:
            own_redis.freeze()
        wait_until(lambda: posted.with_status(503), "a 503")
        if fault == "kill":
            own_redis.start()
        else:
            own_redis.resume()
    assert alone.bodies() == sorted(posted.names), "0 lost, nothing twice"
    away = posted.with_status(503)[0]
    assert int(away.headers["retry-after"]) >= 1
    assert away.headers["content-type"] == "application/problem+json"
    assert len(away.json()["ids"]) == 1
    receipts = {each.json()["id"] for each in posted.with_status(201)}
    assert receipts == alone.stored().keys()


def answers(client: httpx.Client, calls: Sequence[Call]) -> list[httpx.Response]:
    """Return what is answered to calls that are made at once: each is patient for seconds."""
    with ThreadPoolExecutor(len(calls)) as pool:
        asked = [pool.submit(client.request, *words, **more) for *words, more in calls]
    return [each.result() for each in asked]


def test_store_that_is_away_is_said_by_every_operation(alone: Served, own_redis: RedisNode) -> None:
    with alone.client() as client:
        client.post(ORDERS, json={"id": "a", "body": "x", "delay": "1h"})
        own_redis.kill()
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 503
        calls: list[Call] = [
            ("GET", "/v1/routes", {}),
            ("GET", f"{ORDERS}/a", {}),
            ("DELETE", f"{ORDERS}/a", {}),
            ("POST", f"{ORDERS}/a/deliver-now", {}),
            # lines, of which none was answered yet
            ("POST", ORDERS, {"content": b'{"body": "x", "delay": "1h"}\n', "headers": NDJSON}),
        ]
        for answer in answers(client, calls):
            assert (answer.status_code, answer.json()["title"]) == (503, "The delay store is away")
            assert "retry-after" in answer.headers
        own_redis.start()
        wait_until(lambda: client.get("/readyz").status_code == 200, "the store")
        assert client.get(f"{ORDERS}/a").status_code == 200


def test_log_of_a_store_that_is_away_has_neither_ids_nor_bodies(
    alone: Served, own_redis: RedisNode
) -> None:
    own_redis.kill()
    whole = {"id": "canary-id", "body": "canary-body", "delay": "1h"}
    lines = {"content": json.dumps(whole).encode(), "headers": NDJSON}
    calls: list[Call] = [("POST", ORDERS, {"json": whole}), ("POST", ORDERS, lines)]
    pages = ("/search?id=canary-id", "/envelope?route=orders&id=canary-id")
    calls += [("GET", path, {}) for path in (f"{ORDERS}/canary-id", *pages)]
    with alone.client() as client:
        assert [each.status_code for each in answers(client, calls)] == [503] * len(calls)
    wait_until(lambda: len(alone.logged("http")) == len(calls), "the log")
    assert {each["path"] for each in alone.logged("http")} >= {"/search", "/envelope"}
    assert {each["token"] for each in alone.logged("http")} == {"all"}
    assert "canary" not in (alone.home / "log").read_text()


def test_store_that_goes_away_in_a_stream_is_said_line_by_line(
    alone: Served, own_redis: RedisNode
) -> None:
    def lines() -> Iterator[bytes]:
        yield b'{"id": "first", "body": "x", "delay": "1h"}\n'
        wait_until(lambda: "first" in alone.stored(), "the first line")
        own_redis.kill()
        for name in ("second", "third"):
            yield json.dumps({"id": name, "body": "x", "delay": "1h"}).encode() + b"\n"

    with alone.client() as client:
        answer = client.post(ORDERS, content=lines(), headers=NDJSON)
    receipts = [json.loads(each) for each in answer.text.splitlines()]
    assert [(each["id"], each["status"]) for each in receipts] == [
        ("first", "accepted"),
        ("second", "unavailable"),
        ("third", "unavailable"),
    ]
    assert "did not answer" in receipts[1]["error"]


def test_store_that_is_full_is_said_with_when_to_come_again(
    alone: Served, own_redis: RedisNode
) -> None:
    with redis.Redis(port=own_redis.port) as admin, alone.client() as client:
        given = {"body": "x", "delay": "1h"}
        assert client.post(ORDERS, json=given).status_code == 201
        admin.config_set("maxmemory", 1)
        answer = client.post(ORDERS, json=given)
        assert (answer.status_code, answer.json()["title"]) == (503, "The delay store is full")
        assert len(answer.json()["ids"]) == 1
        assert int(answer.headers["retry-after"]) >= 10
        admin.config_set("maxmemory", 0)
        assert client.post(ORDERS, json=given).status_code == 201


def test_sigterm_answers_what_is_in_hand(alone: Served, own_redis: RedisNode) -> None:
    names = [f"n-{number}" for number in range(20)]
    with alone.client() as client:
        client.post(ORDERS, json={"id": "opened", "body": "x", "delay": "1h"})
    with opened(alone, len(names)) as connections:
        own_redis.freeze()
        for connection, name in zip(connections, names, strict=True):
            connection.sendall(request(ORDERS, id=name))
        wait_until(lambda: is_read(alone, len(names)), "the requests")
        alone.process.terminate()
        wait_until(lambda: not listens(alone.port), "the end of listening")
        own_redis.resume()
        assert {status(each) for each in connections} == {201}
    assert alone.process.wait(30) == 0
    assert alone.stored().keys() == {"opened", *names}
    assert alone.logged("drained")


@contextmanager
def opened(served: Served, many: int) -> Iterator[list[socket.socket]]:
    """Connect before the store stands still: beyond four seconds of that the answer is 503."""
    with ExitStack() as stack:
        address = ("127.0.0.1", served.port)
        yield [stack.enter_context(socket.create_connection(address, 60)) for _ in range(many)]


def request(path: str, **given: str) -> bytes:
    """A whole request, after whose answer the server ends the connection."""
    body = json.dumps({"body": "x", "delay": "1h", **given})
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {SECRETS['all']}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def status(connection: socket.socket) -> int:
    """The status that a connection was answered with."""
    with connection.makefile("rb") as answer:
        return int(answer.read().split(b" ", 2)[1])


def is_read(served: Served, many: int) -> bool:
    """Whether the server has read all that was sent on so many connections.

    That there is a connection says nothing: the kernel makes it, for a server that still sleeps.
    """
    unread = unread_bytes(served)
    return len(unread) >= many and not any(unread)


def unread_bytes(served: Served) -> list[int]:
    """How many bytes the server has not read yet, of each connection that it has."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return [
        int(row[4].partition(":")[2], 16)
        for row in rows
        if row[1].endswith(f":{served.port:04X}") and row[3] in CONNECTED
    ]


def test_metrics_have_no_second_series_of_when_a_counter_began(alone: Served) -> None:
    with alone.client() as client:
        client.get("/v1/routes/small/stats")
        text = client.get("/metrics").text
    assert "duebridge_http_requests_total{" in text
    assert "_created" not in text


def test_posts_that_arrive_together_share_a_call(alone: Served, own_redis: RedisNode) -> None:
    path, many = "/v1/routes/small/envelopes", 40

    def calls() -> float:
        with alone.client() as client:
            text = client.get("/metrics").text
        return next((float(row.split()[1]) for row in text.splitlines() if CALLS in row), 0.0)

    with opened(alone, 1) as (first,):
        first.sendall(request(path))
        assert status(first) == 201
    before = calls()
    with opened(alone, many) as connections:
        own_redis.freeze()
        for connection in connections:
            connection.sendall(request(path))
        wait_until(lambda: is_read(alone, many), "the requests")
        own_redis.resume()
        assert {status(each) for each in connections} == {201}
    assert len(alone.stored("small")) == many + 1
    assert calls() - before <= 10, "one call was on its way, and the next has what came meanwhile"


# --- clients that hang up ---


def head_of(kind: str, key: str, length: str) -> bytes:
    return (
        f"POST {ORDERS} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {SECRETS['all']}\r\nContent-Type: {kind}\r\n"
        f"Idempotency-Key: {key}\r\n{length}\r\n\r\n"
    ).encode()


def hang_up_behind(served: Served, part: bytes, *, is_reset: bool) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 30) as client:
        client.sendall(part)
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def test_client_that_hangs_up_and_posts_again_stores_once(alone: Served) -> None:
    names, chance = [f"n-{number}" for number in range(100)], random.Random(19)
    for name in names:
        body = json.dumps({"body": name, "delay": "1h"}).encode()
        head = head_of("application/json", name, f"Content-Length: {len(body)}")
        cut = chance.choice([0, 0, 1, len(body) - 5, len(body) + 5])
        whole = head + body
        hang_up_behind(alone, whole[: len(whole) - cut], is_reset=chance.random() < 0.3)
    wait_until(lambda: not unread_bytes(alone), "the end of every request")
    was_stored = set(alone.bodies())
    assert was_stored, "a request that came whole is stored, whoever hung up"
    replayed = set()
    with alone.client() as client:
        for name in names:
            given = {"body": name, "delay": "1h"}
            answer = client.post(ORDERS, json=given, headers={"Idempotency-Key": name})
            assert answer.status_code == 201, answer.text
            if "idempotency-replayed" in answer.headers:
                replayed.add(name)
    assert was_stored <= replayed < set(names)
    assert alone.bodies() == sorted(names), "0 lost, nothing twice"


def test_request_whose_client_has_left_is_begun_and_sent_no_more(
    own_redis: RedisNode, tmp_path: Path
) -> None:
    with proxied(own_redis.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        with serving(tmp_path / "alone", url) as served, served.client() as client:
            moved = client.post(ORDERS, json={"id": "moved", "body": "x", "delay": "1h"}).json()
            proxy.refuse(10**6)
            with opened(served, 3) as connections:
                connections[0].sendall(request(ORDERS, id="sent"))
                connections[1].sendall(request(ORDERS, id="behind it"))
                connections[2].sendall(request(f"{ORDERS}/moved/deliver-now"))
                # by the growing pauses between them that takes a while
                wait_until(lambda: proxy.refused >= 6, "some tries")
            for _ in range(2):  # by then the server has seen the clients leave
                assert client.get("/livez").status_code == 200
            proxy.refuse(0)
            wait_until(lambda: len(served.logged("http")) >= 6, "the end of every request")
            wait_until(lambda: client.get("/readyz").status_code == 200, "the store")
            assert served.stored().keys() == {"moved"}
            assert client.get(f"{ORDERS}/moved").json()["due_at_ms"] == moved["due_at_ms"]


def test_stream_that_is_cut_and_sent_again_stores_each_line_once(alone: Served) -> None:
    names = [f"n-{number}" for number in range(600)]
    lines = [json.dumps({"body": name, "delay": "1h"}).encode() + b"\n" for name in names]
    head = head_of("application/x-ndjson", "stream", "Transfer-Encoding: chunked")
    chunks = b"".join(f"{len(each):x}\r\n".encode() + each + b"\r\n" for each in lines[:401])
    with socket.create_connection(("127.0.0.1", alone.port), 30) as client:
        client.sendall(head + chunks[:-20])  # within the last line
        wait_until(lambda: len(alone.stored()) >= 100, "the first lines")
    wait_until(lambda: not unread_bytes(alone), "the end of the request")
    cut = len(alone.stored())
    assert 100 <= cut <= 400, "none beyond what came whole"
    headers = {**NDJSON, "Idempotency-Key": "stream"}
    with alone.client() as client:
        answer = client.post(ORDERS, content=b"".join(lines), headers=headers)
    statuses = [json.loads(each)["status"] for each in answer.text.splitlines()]
    assert statuses == ["accepted"] * len(names), "as at first"
    assert alone.bodies() == sorted(names), "0 lost, nothing twice"
