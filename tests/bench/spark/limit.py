"""The limit of any client: Redis' own C client sends the bytes that a job writes, and no script.

what the store has after a round ─▶ HSET, ZADD, XADD of the same bytes ─▶ redis-cli --pipe

It judges nothing and guarantees nothing: it is as fast as Redis reads commands, on the same server
with the same append-only file.
"""

import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

CALL_ROWS = 125  # of a command: as many as a call of the product has
PAGE = 1000
ENTRIES = 8  # of the journal, 125 rows each or so
T = TypeVar("T")
Command: TypeAlias = tuple[bytes, ...]


class Traffic(NamedTuple):
    """What is sent before the clock starts, and what is timed."""

    before: Iterable[Command]
    timed: Iterable[Command]


Limit: TypeAlias = Callable[[Any], Traffic]
FLUSH: Command = (b"FLUSHALL",)


def written(client: Any) -> Traffic:
    """Write records, index and journal into an empty store."""
    return Traffic([FLUSH], _writes(client))


def removed(client: Any) -> Traffic:
    """Read and remove records and index, and write a journal of it."""
    return Traffic(chain([FLUSH], _writes(client)), _removals(client))


def entries_read(client: Any) -> Traffic:
    """Read the journal."""
    return Traffic([], _entry_reads(client))


def records_read(client: Any) -> Traffic:
    """Read the records, a page of ids at a time."""
    keys = _keys(client, "hash")
    return Traffic([], ((b"HMGET", key, *ids) for key in keys for ids in _ids(client, key)))


def limit(client: Any, home: Path, rows: int, of: Limit) -> float:
    """Return how many rows a second the C client reaches with what the store has now."""
    traffic = of(client)
    before, timed = (_saved(home / name, getattr(traffic, name)) for name in Traffic._fields)
    port = client.connection_pool.connection_kwargs["port"]
    _send(port, before)
    began = time.monotonic()
    _send(port, timed)
    return rows / (time.monotonic() - began)


def _keys(client: Any, kind: str) -> list[bytes]:
    return sorted(client.scan_iter(count=PAGE, _type=kind))


def _ids(client: Any, key: bytes) -> Iterator[tuple[bytes, ...]]:
    return _in_parts(client.hkeys(key), PAGE)


def _in_parts(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    rest = iter(items)
    while part := tuple(islice(rest, size)):
        yield part


def _writes(client: Any) -> Iterator[Command]:
    for key in _keys(client, "hash"):
        for pairs in _in_parts(client.hscan_iter(key, count=PAGE), CALL_ROWS):
            yield b"HSET", key, *chain.from_iterable(pairs)
    for key in _keys(client, "zset"):
        for scored in _in_parts(client.zscan_iter(key, count=PAGE), CALL_ROWS):
            yield b"ZADD", key, *chain.from_iterable((b"%d" % due, name) for name, due in scored)
    for key in _keys(client, "stream"):
        for _, fields in client.xrange(key):
            yield b"XADD", key, b"*", *chain.from_iterable(fields.items())


def _removals(client: Any) -> Iterator[Command]:
    for command, key, *rest in _writes(client):
        if command == b"HSET":
            yield b"HMGET", key, *rest[::2]
            yield b"HDEL", key, *rest[::2]
        elif command == b"ZADD":
            yield b"ZREM", key, *rest[1::2]
        else:
            yield command, key, *rest


def _entry_reads(client: Any) -> Iterator[Command]:
    for key in _keys(client, "stream"):
        last = client.xinfo_stream(key)["last-generated-id"]
        for first in range(0, int(last.partition(b"-")[0]), ENTRIES):
            yield b"XRANGE", key, b"(%d" % first, b"+", b"COUNT", b"%d" % ENTRIES


def _saved(file: Path, commands: Iterable[Command]) -> Path:
    with file.open("wb") as out:
        for command in commands:
            parts = (b"$%d\r\n%s\r\n" % (len(part), part) for part in command)
            out.write(b"*%d\r\n" % len(command) + b"".join(parts))
    return file


def _send(port: int, file: Path) -> None:
    given = ["redis-cli", "-p", str(port), "--pipe"]
    with file.open("rb") as commands:
        done = subprocess.run(given, stdin=commands, capture_output=True, text=True, check=True)
    assert "errors: 0" in done.stdout, done.stdout
