"""CPU of `duebridge serve` an envelope: single posts on 32 connections, and lines in a stream.

    python -m tests.bench.http --rounds 3

Prints each round. Compare CPU and calls, not rates: a shared machine gives another rate each time.
"""

import argparse
import asyncio
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tests.support.serving import SECRETS, Served, serving, store_server

CONNECTIONS = 32
POSTS, LINES = 6_400, 50_000
WARM = 640
ROUTE = "topic"  # of one shard
PATH = f"/v1/routes/{ROUTE}/envelopes"
HEADERS = {name: f"value of {name}" for name in ("tenant", "trace", "source", "kind", "version")}
ENVELOPE = {"body": "x" * 200, "delay": "1h", "headers": HEADERS}
CHUNK = 250  # lines
TICKS = os.sysconf("SC_CLK_TCK")

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Work: TypeAlias = Callable[[Served, int], Awaitable[None]]


class Spent(NamedTuple):
    """What a server has used so far."""

    cpu_s: float
    calls: float


class Cost(NamedTuple):
    """What an envelope took in a round of some work."""

    work: str
    cpu_us: float
    calls: float
    per_s: float


async def costs(rounds: int) -> AsyncIterator[Cost]:
    """Yield what single posts and lines cost, round by round, on a server of their own."""
    with tempfile.TemporaryDirectory() as given:
        home = Path(given)
        with (
            store_server(home / "r") as port,
            serving(home / "s", f"redis://127.0.0.1:{port}", is_afresh=True) as at,
        ):
            await posts(at, WARM)
            for _ in range(rounds):
                yield await measured(at, "post", posts, POSTS)
                yield await measured(at, "line", lines, LINES)


async def least(rounds: int) -> dict[str, Cost]:
    """Return the round of each work that took the least CPU."""
    found: dict[str, Cost] = {}
    async for cost in costs(rounds):
        found[cost.work] = min(cost, found.get(cost.work, cost), key=lambda each: each.cpu_us)
    return found


async def measured(served: Served, work: str, do: Work, count: int) -> Cost:
    """Return what the server spent on some work."""
    before, began = spent(served), asyncio.get_running_loop().time()
    await do(served, count)
    took_s, after = asyncio.get_running_loop().time() - began, spent(served)
    cpu_us = 1e6 * (after.cpu_s - before.cpu_s) / count
    return Cost(work, cpu_us, (after.calls - before.calls) / count, count / took_s)


async def main(rounds: int) -> None:
    """Print each round."""
    async for cost in costs(rounds):
        each = f"{cost.cpu_us:.1f} us of CPU and {cost.calls:.4f} store calls"
        print(f"a {cost.work}: {each}; {cost.per_s:,.0f}/s")


def spent(served: Served) -> Spent:
    """Return the server's CPU, and its schedule calls."""
    with served.client() as client:
        text = client.get("/metrics").text
    name = 'duebridge_store_call_seconds_count{script="schedule"}'
    calls = sum(float(line.split()[1]) for line in text.splitlines() if name in line)
    fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
    return Spent((int(fields[11]) + int(fields[12])) / TICKS, calls)


def head(kind: str, length: str) -> bytes:
    """Return the head of a request."""
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {SECRETS['all']}\r\n"
        f"Content-Type: {kind}\r\n{length}\r\n\r\n"
    ).encode()


async def connected(served: Served, first: bytes) -> Streams:
    """Connect and send at once: a starved loop takes longer than a server waits for a head."""
    opened = socket.create_connection(("127.0.0.1", served.port))
    opened.sendall(first)
    return await asyncio.open_connection(sock=opened)


async def posts(served: Served, count: int) -> None:
    """Post envelopes one by one, on keep-alive connections."""
    body = json.dumps(ENVELOPE).encode()
    request = head("application/json", f"Content-Length: {len(body)}") + body

    async def connection() -> None:
        reader, writer = await connected(served, request)
        for left in reversed(range(count // CONNECTIONS)):
            answer = await reader.readuntil(b"}")
            assert b" 201 " in answer, answer
            if left:
                writer.write(request)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))


async def lines(served: Served, count: int) -> None:
    """Post envelopes in one stream, reading the receipts meanwhile."""
    begin = head("application/x-ndjson", "Transfer-Encoding: chunked")
    reader, writer = await connected(served, begin)
    part = (json.dumps(ENVELOPE).encode() + b"\n") * CHUNK

    async def send() -> None:
        for _ in range(count // CHUNK):
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    sending = asyncio.ensure_future(send())
    answer = await reader.readuntil(b"\r\n\r\n")
    stored = 0
    while not answer.endswith(b"0\r\n\r\n"):
        answer = answer[-5:] + (got := await reader.read(1 << 20))
        stored += got.count(b'"accepted"')
    await sending
    assert stored >= 0.99 * count, stored  # a receipt may lie on both sides of a read
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(main(parser.parse_args().rounds))
