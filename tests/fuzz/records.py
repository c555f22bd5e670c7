"""A shard with something in every state, and damage to one thing that it keeps.

Damage to an id may cost that id, and nobody else; damage to what the shard shares may stop it until
that is mended, and costs nobody.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from duebridge.store.keys import SHARD_KEYS, Shard, routes_key
from tests.store.desk import Desk

STATES = ("dead", "suspect", "retry", "unack", "ready", "pending")
IDS = [f"{state}-{number}" for state in STATES for number in range(2)]
LATER_MS = 1_000_000

Saved = dict[str, bytes]


def body_of(id: str) -> bytes:
    return f"body of {id}".encode()


def ids_of(state: str) -> list[str]:
    return [each for each in IDS if each.startswith(state)]


def fill(desk: Desk) -> None:
    """Two ids in each state."""
    for state in STATES[:-1]:
        how = {"delay_ms": LATER_MS} if state == "retry" else {}
        getattr(desk, state)(*ids_of(state), **how)
    desk.pending(*ids_of("pending"))


def save(client: Any, shard: Shard) -> Saved:
    """Every key of a shard, as the server dumps it."""
    return {key: data for key in list(shard.keys()) if (data := client.dump(key)) is not None}


def restore(client: Any, saved: Saved) -> None:
    """The shard as it was saved, and nothing else in the store."""
    with client.pipeline(transaction=False) as pipe:
        pipe.flushdb()
        for key, data in saved.items():
            pipe.restore(key, 0, data)
        pipe.execute()


class Damage(NamedTuple):
    """What was done: to which id, or to none but the shard; and how it is undone."""

    what: str
    id: str
    mend: Callable[[], Any]


class Vandal:
    """Damages one thing of a shard."""

    def __init__(self, draw: st.DrawFn, client: Any, shard: Shard) -> None:
        self._draw = draw
        self._client = client
        self._routes, self._route = routes_key(shard.namespace), shard.route
        self._key = dict(zip(SHARD_KEYS, shard.keys(), strict=True))

    def damage_id(self) -> Damage:
        name = self._draw(st.sampled_from(IDS))
        ways = [self._record, self._record, self._flight, self._flight, self._place, self._ghost]
        record = self._client.hget(self._key["envelopes"], name)
        what = self._draw(st.sampled_from(ways))(name)
        return Damage(what, name, lambda: self._client.hset(self._key["envelopes"], name, record))

    def damage_shard(self) -> Damage:
        ways = [self._meta, self._meta, self._journal, self._memory, self._kind, self._registry]
        return self._draw(st.sampled_from(ways))()

    # --- of an id ---

    def _record(self, id: str) -> str:
        return self._field("envelopes", id)

    def _flight(self, id: str) -> str:
        return self._field("flight", id)

    def _field(self, name: str, id: str) -> str:
        before = self._client.hget(self._key[name], id) or b""
        after = self._draw(spoilt_bytes(before))
        if after is None:
            self._client.hdel(self._key[name], id)
        else:
            self._client.hset(self._key[name], id, after)
        return f"{name} of {id}: {before!r} -> {after!r}"

    def _place(self, id: str) -> str:
        """Another score, another state beside its own, or none."""
        own = id.partition("-")[0]
        name = self._draw(st.sampled_from([own, own, *STATES]))
        score = self._draw(_scores)
        if score is None:
            self._client.zrem(self._key[own], id)
        else:
            self._client.zadd(self._key[name], {id: score})
        return f"{id} in {name} at {score}"

    def _ghost(self, id: str) -> str:
        """An id in a state that nobody scheduled, with or without the record of another."""
        ghost = self._draw(_ghosts)
        name = self._draw(st.sampled_from(STATES))
        self._client.zadd(self._key[name], {ghost: self._draw(st.integers(0, 2 * 10**12))})
        if record := self._draw(st.booleans()):
            self._client.hset(
                self._key["envelopes"], ghost, self._client.hget(self._key["envelopes"], id)
            )
        return f"ghost {ghost!r} in {name}, record {record}"

    # --- of the shard ---

    def _meta(self) -> Damage:
        name = self._draw(st.sampled_from(sorted(self._client.hkeys(self._key["meta"]))))
        name = self._draw(st.sampled_from([name, b"held_since", b"journal_dropped"]))
        before = self._client.hget(self._key["meta"], name)
        after = self._draw(_numbers)
        self._client.hset(self._key["meta"], name, after)
        mend = self._mend_field(name, before)
        return Damage(f"meta {name!r}: {before!r} -> {after!r}", "", mend)

    def _mend_field(self, name: bytes, before: bytes | None) -> Callable[[], Any]:
        if before is None:
            return lambda: self._client.hdel(self._key["meta"], name)
        return lambda: self._client.hset(self._key["meta"], name, before)

    def _journal(self) -> Damage:
        """Entries whose fields are others; their numbers stay dense."""
        key = self._key["journal"]
        entries = self._client.xrange(key)
        place = self._draw(st.integers(0, len(entries) - 1))
        number, fields = entries[place]
        name = self._draw(st.sampled_from(sorted(fields)))
        after = self._draw(spoilt_bytes(fields[name]))
        changed = {each: after if each == name else fields[each] for each in fields}
        if after is None:
            del changed[name]
        entries[place] = (number, changed)
        with self._client.pipeline() as pipe:
            pipe.delete(key)
            for each in entries:
                pipe.xadd(key, each[1], id=each[0])
            pipe.execute()
        return Damage(
            f"journal {number!r} {name!r}: {fields[name]!r} -> {after!r}", "", lambda: None
        )

    def _memory(self) -> Damage:
        name, value = self._draw(st.binary(max_size=5)), self._draw(st.binary(max_size=20))
        score = self._draw(_scores.filter(lambda score: score is not None))
        self._client.hset(self._key["memory"], name, value)
        self._client.zadd(self._key["forget"], {name: score})
        mend = self._client.zrem
        return Damage(
            f"memory {name!r}: {value!r}, {score}", "", lambda: mend(self._key["forget"], name)
        )

    def _registry(self) -> Damage:
        """What the namespace knows of the route."""
        given = self._draw(_numbers)
        self._client.hset(self._routes, self._route, given)
        mend = self._client.hdel
        return Damage(f"registry: {given!r}", "", lambda: mend(self._routes, self._route))

    def _kind(self) -> Damage:
        """A key that holds another kind of thing; its own comes back as it was."""
        name = self._draw(st.sampled_from([each for each in SHARD_KEYS if each != "wake"]))
        key, aside = self._key[name], f"{self._key[name]}-aside"
        has_key = self._client.exists(key)
        if has_key:
            self._client.rename(key, aside)
        self._client.set(key, b"no such thing")

        def mend() -> None:
            self._client.delete(key)
            if has_key:
                self._client.rename(aside, key)

        return Damage(f"key {name} is a text", "", mend)


_scores = st.one_of(
    st.none(),
    st.integers(0, 2 * 10**12),
    st.sampled_from(
        [0.5, 1.7e12 + 0.25, 1e15, 2.0**53, 1e300, float("inf"), float("-inf"), -1, -5]
    ),
)
_ghosts = st.one_of(st.just(b""), st.binary(max_size=6), st.just(b"\xff\xfe"))
_numbers = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [b"", b"-1", b"0", b"1e3", b"nan", b"inf", b"0x10", b"9" * 30, b"9223372036854775807"]
    ),
)


@st.composite
def spoilt_bytes(draw: st.DrawFn, data: bytes) -> bytes | None:
    """Bytes with one to three bits turned, cut, lengthened or replaced; None for none at all."""
    how = draw(st.sampled_from(["flip", "flip", "flip", "cut", "more", "replace", "none"]))
    if how == "none":
        return None
    if how == "replace" or not data:
        return draw(st.binary(max_size=60))
    if how == "cut":
        return data[: draw(st.integers(0, len(data) - 1))]
    if how == "more":
        return data + draw(st.binary(min_size=1, max_size=9))
    spoilt = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        spoilt[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
    return bytes(spoilt)
