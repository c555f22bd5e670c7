"""What a server, or the way to it, may answer instead of a script's own reply.

As values (`changed`), for the readers of replies; as bytes (`spoilt`), for the client's socket.
"""

import select
import socket
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from duebridge.store.connection import Connection, Reply
from duebridge.store.scripts import Script
from tests.store.proxy import CHUNK, TICK_S, Proxy

_no_bytes = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-1, 0, 1, 2**48, 2**63 - 1, -(2**63)]),
    st.floats(),
)
_scalars = st.one_of(
    _no_bytes,
    st.binary(max_size=60),
    st.sampled_from([b"", b"OK", b"\xff", b"-inf", b"\x01" + bytes(38), b"\x02" + bytes(60)]),
)


def _nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=6), st.dictionaries(st.binary(max_size=3), inner, max_size=2)
        ),
        max_leaves=12,
    )


_anything, _anything_but_bytes = _nested(_scalars), _nested(_no_bytes)


def changed(draw: st.DrawFn, value: Any, *, keeps_bytes: bool) -> Any:
    """A true reply with one place of it dropped, doubled, cut, or replaced by something else.

    With `keeps_bytes` no bytes become other bytes: that is what checksums below us are for.
    """
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        inner = changed(draw, value[place], keeps_bytes=keeps_bytes)
        return [*value[:place], inner, *value[place + 1 :]]
    how = draw(st.sampled_from(["replace", "cut", "double", "drop"]))
    if how == "cut" and (isinstance(value, list) or (isinstance(value, bytes) and not keeps_bytes)):
        return value[: draw(st.integers(0, len(value)))]
    if isinstance(value, list) and how in {"double", "drop"}:
        return value + value[:1] if how == "double" else value[1:]
    return draw(_anything_but_bytes if keeps_bytes else _anything)


class Tampered(Connection):
    """A connection whose next replies go through `change`."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.change: Callable[[Any], Any] | None = None

    def run(self, called: Script, *arguments: Any) -> Reply:
        reply = super().run(called, *arguments)
        return reply if self.change is None else Reply(self.change(reply.value), reply.repeated)


class Parrot(Connection):
    """A connection that answers the same to everything."""

    def __init__(self, reply: Any) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._reply = reply

    def run(self, *asked: Any) -> Reply:
        return Reply(self._reply, False)


class Spoilt(NamedTuple):
    """What the client gets of a chunk of replies, and whether the connection then ends."""

    data: bytes
    is_cut: bool


Spoiler = Callable[[bytes], Spoilt]


def unspoilt(data: bytes) -> Spoilt:
    return Spoilt(data, False)


_WORDS = [
    "+OK", "-ERR no", "-OOM command not allowed", "-BUSY Redis is busy", "-LOADING wait",
    "-NOSCRIPT No matching script", "-MOVED 1 127.0.0.1:1", "-MOVED", "-ASK x", "-READONLY no",
    "-NOAUTH no", "-WRONGPASS no", "-NOPERM no", "-CLUSTERDOWN x", "-TRYAGAIN x", "-MASTERDOWN x",
    "-EXECABORT x", "-MISCONF no", "-", "-\xff\xfe", ":1", ":", ":x", ":99999999999999999999",
    "$-1", "$0", "$3", "$x", "$99999999999", "*0", "*-1", "*1", "*99999999", "_", "#t", "#x",
    ",1.5", ",x", "(9", "%1", "~1", ">1", "=4", "!3", "@", "HTTP/1.1 200 OK", "", "\0",
]  # fmt: skip


@st.composite
def spoilers(draw: st.DrawFn) -> Spoiler:
    """What happens to a chunk; nothing changes the bytes of an envelope."""
    how = draw(st.sampled_from(["cut", "stall", "instead", "instead", "before", "after", "head"]))
    word = draw(st.sampled_from(_WORDS)).encode("latin-1") + b"\r\n"
    part, byte = draw(st.floats(0, 0.99)), draw(st.binary(min_size=1, max_size=1))
    ends = draw(st.booleans())
    changes: dict[str, Spoiler] = {
        "cut": lambda data: Spoilt(data[: int(part * len(data))], True),
        "stall": lambda data: Spoilt(data[: int(part * len(data))], False),
        "instead": lambda data: Spoilt(word, ends),
        "before": lambda data: Spoilt(word + data, ends),
        "after": lambda data: Spoilt(data + word, ends),
        "head": lambda data: Spoilt(byte + data[1:], ends),
    }
    return changes[how]


class SpoilingProxy(Proxy):
    """A proxy whose next chunks of replies are spoilt, one after the other.

    Whoever waits for the rest of what was spoilt is hung up on; so its client needs no timeout, by
    which a slow machine would break calls that nobody spoilt. After `heal` every call is answered.
    """

    def __init__(self, target_port: int) -> None:
        self._spoilers: list[Spoiler] = []
        self._hangs_up = False
        self.spoilt = 0
        super().__init__(target_port)

    def spoil(self, spoilers: Iterable[Spoiler], *, hangs_up: bool = True) -> None:
        """Spoil as many chunks; until `heal`, hang up on whoever waits for more of one."""
        with self._lock:
            self._spoilers, self._hangs_up, self.spoilt = list(spoilers), hangs_up, 0

    def heal(self) -> None:
        """From here on every reply is as it was sent, and no connection is ended."""
        with self._lock:
            self._spoilers, self._hangs_up = [], False

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        is_spoilt = False
        while not self._is_closed:
            readable, _, _ = select.select([client, server], [], [], TICK_S)
            if not readable and is_spoilt and self._hung_up(client):
                return
            if server in readable:
                data = server.recv(CHUNK)
                given = self._give(data, client)
                if not data or given.is_cut:
                    return
                is_spoilt |= given != unspoilt(data)
            if client in readable:
                request = client.recv(CHUNK)
                if not request:
                    return
                server.sendall(request)

    def _hung_up(self, client: socket.socket) -> bool:
        with self._lock:  # whoever healed it since is not hung up on
            if self._hangs_up:
                client.shutdown(socket.SHUT_RDWR)
            return self._hangs_up

    def _give(self, data: bytes, client: socket.socket) -> Spoilt:
        with self._lock:
            spoiler = self._spoilers.pop(0) if self._spoilers and data else unspoilt
            given = spoiler(data)
            self.spoilt += given != unspoilt(data)
            client.sendall(given.data)
            if given.is_cut:
                client.shutdown(socket.SHUT_RDWR)
        return given
