"""The envelope: a message and when it is due, as a frozen value.

A delay stays a delay here: only the delay store's clock resolves it. The stored form is
`duebridge.store.wire.record`'s, the limits of brokers are `duebridge.scheduling.limits`'s.
"""

import secrets
import string
from binascii import b2a_base64
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Self, TypeAlias, TypedDict, Unpack
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.msgpack import Ext

from duebridge.amqp_fields import AMQP_FIELD, field_value
from duebridge.durations import parse_duration_ms, parse_instant_ms
from duebridge.errors import EnvelopeError, did_you_mean, shown
from duebridge.values import checked_text, encode_json, sized, utf8, whole_or_none

HeaderValue: TypeAlias = bytes | str | int | bool | Ext | None
Headers: TypeAlias = tuple[tuple[str, HeaderValue], ...]
HeadersGiven: TypeAlias = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]
BodyGiven: TypeAlias = bytes | str | UnsetType | None

JSON = "application/json"
SHORT_BYTES = 255  # AMQP's limit of a property or a name
_MOST = {"priority": 255}


class Target:
    """Where an envelope goes: a broker, and the fields that a target of its type has.

    It is frozen and hashable. A field that is None counts as not given, and reads as None. A field
    named like a method of this class is among `fields` alone.

    >>> Target("orders", topic="late").topic
    'late'
    """

    broker: str
    fields: tuple[tuple[str, str], ...]
    """Names and values, by name."""

    def __init__(self, /, broker: str, **fields: str | None) -> None:
        given = tuple(sorted(item for item in fields.items() if item[1] is not None))
        # Attributes of the instance: publishers read them for every message.
        own = [item for item in given if item[0] not in _TARGET_NAMES]
        self.__dict__.update(own, broker=broker, fields=given)

    def as_dict(self) -> dict[str, str]:
        """Return the target as the configuration has it: broker and fields."""
        return {"broker": self.broker, **dict(self.fields)}

    def __getattr__(self, name: str) -> str | None:
        if name.startswith("_"):
            raise AttributeError(name)
        return None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Target is frozen: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Target):
            return NotImplemented
        return (self.broker, self.fields) == (other.broker, other.fields)

    def __hash__(self) -> int:
        return hash((self.broker, self.fields))

    def __reduce__(self) -> tuple[object, ...]:
        return target_of, (Target, self.as_dict())

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"Target({values})"

    def __str__(self) -> str:
        return f"{self.broker}:{'/'.join(value for _, value in self.fields)}"


_TARGET_NAMES = frozenset(dir(Target))


def target_of(kind: type, given: object) -> Target:
    """Return a target out of a decoded mapping: the `dec_hook` of a msgspec decoder.

    Raises `ValueError` for anything else, which msgspec turns into its own error.
    """
    if kind is not Target or not isinstance(given, dict):
        raise ValueError(f"expected a target; got {type(given).__name__}")
    if not all(isinstance(value, str | None) for value in given.values()):
        raise ValueError("expected text in every field of a target")
    if not isinstance(given.get("broker"), str):
        raise ValueError("expected a target with the key broker")
    return Target(**given)


def target_as_dict(value: object) -> dict[str, str]:
    """Return a target as a mapping: the `enc_hook` of a msgspec encoder."""
    if not isinstance(value, Target):
        raise NotImplementedError(f"no encoding for {type(value).__name__}")
    return value.as_dict()


class Properties(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The AMQP properties of an envelope; `message_id` is the envelope's own id."""

    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    app_id: str | None = None
    user_id: str | None = None
    expiration: str | None = None
    priority: int | None = None
    timestamp: int | None = None


NO_PROPERTIES = Properties()


class Instant(msgspec.Struct, frozen=True):
    """An instant as it was given: `ms` after the store accepts it, or `ms` since the epoch."""

    ms: int
    relative: bool

    def __str__(self) -> str:
        """Return the text that a reschedule sends and a content hash covers: `+15000`, epoch ms."""
        return f"+{self.ms}" if self.relative else str(self.ms)


class EnvelopeFields(TypedDict, total=False):
    """The fields that `Envelope.new` and `Producer.schedule` take beside the body.

    The last ones are those of `Properties`: a type checker needs them spelt here too.
    """

    json: object
    delay: str | timedelta | None
    at: datetime | int | None
    id: str | UUID | None
    expires: str | timedelta | datetime | int | None
    key: bytes | str | None
    headers: HeadersGiven | None
    max_attempts: int | None
    remember: str | timedelta | None
    target: Target | None
    content_type: str | None
    content_encoding: str | None
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    app_id: str | None
    user_id: str | None
    expiration: str | None
    priority: int | None
    timestamp: int | None


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A message and when it is due. Build one with `Envelope.new`, which checks every field."""

    id: str
    body: bytes | None
    due: Instant
    expires: Instant | None = None
    key: bytes | None = None
    headers: Headers = ()
    properties: Properties = NO_PROPERTIES
    max_attempts: int | None = None
    remember_ms: int | None = None
    target: Target | None = None

    @classmethod
    def new(cls, body: BodyGiven = UNSET, **fields: Unpack[EnvelopeFields]) -> Self:
        """Return a checked envelope; without an `id` it gets a random one of 100 bits.

        Exactly one of `body` (bytes, text that goes as UTF-8, or None for a Kafka tombstone) and
        `json` (any value that JSON carries, a set as an array; sets `content_type` to
        application/json unless given).

        Exactly one of `delay` ("500ms" "2.5s" "1h30m" "2w", or a timedelta) and `at` (an aware
        datetime, or integer epoch ms: what looks like seconds or a date, as 20261231, is refused);
        an instant of the past is due now. `expires` takes either form, `remember` a duration.
        `id` is text or a UUID, `key` bytes or text. `headers` are a mapping or pairs of name and
        value. The other fields are AMQP's: see `Properties`.

        Raises `EnvelopeError`, which says what was expected and what came.
        """
        given: dict[str, Any] = dict(fields)
        if not given.keys() <= FIELD_NAMES:
            raise EnvelopeError(unknown_field(given, FIELD_NAMES))
        get = given.get
        id_given = get("id")
        remember = get("remember")
        json = given.get("json", UNSET)
        return cls(
            id=random_id()
            if id_given is None
            else checked_text("id", checked_id(id_given), 1, SHORT_BYTES),
            body=_bytes_or_none("body", body) if json is UNSET else _json_bytes(body, json),
            due=due_instant(get("delay"), get("at")),
            expires=_expires(get("expires")),
            key=_bytes_or_none("key", get("key")),
            headers=_headers(get("headers")),
            properties=_properties(given, json),
            max_attempts=whole_or_none("max_attempts", get("max_attempts"), 1, 10_000),
            remember_ms=None if remember is None else parse_duration_ms(remember, "remember"),
            target=_target(get("target")),
        )


FIELD_NAMES = EnvelopeFields.__annotations__.keys()
PROPERTY_NAMES = frozenset(Properties.__struct_fields__)


def unknown_field(given: Iterable[str], known: Collection[str]) -> str:
    """Return the message about the first field that is not known; empty if all are."""
    name = next((name for name in given if name not in known), None)
    if name is None:
        return ""
    hint = did_you_mean(name, known) or f": expected one of {', '.join(known)}"
    return f"unknown field {shown(name)}{hint}"


def checked_id(value: object) -> str:
    """Return the text of an id, which may be given as a UUID; raises `EnvelopeError`."""
    text = _id(value)
    if not isinstance(text, str):
        name = type(value).__name__
        hint = f"; pass {name.lower()}.id" if isinstance(getattr(value, "id", None), str) else ""
        raise EnvelopeError(f"id: expected text or a UUID; got {name}{hint}")
    return utf8("id", text)


def _id(value: object) -> object:
    return str(value) if isinstance(value, UUID) else value


# Base64 without capitals and signs: no symbol stands for more than 2 of 64, so each has 5 bits.
_LOWER = bytes.maketrans(
    string.ascii_uppercase.encode() + b"+/", string.ascii_lowercase.encode() + b"01"
)


def random_id() -> str:
    """Return 20 letters and digits, 100 random bits; no character that a shell would misread.

    The store allocates an id twice; one of 24 characters would take the next size up.
    """
    return b2a_base64(secrets.token_bytes(15), newline=False).translate(_LOWER).decode()


def due_instant(delay: object, at: object) -> Instant:
    """Return the instant that exactly one of `delay` and `at` gives; raises `EnvelopeError`."""
    if (delay is None) == (at is None):
        got = "neither" if delay is None else "both"
        raise EnvelopeError(f"delay, at: expected exactly one of the two; got {got}")
    if at is None:
        return Instant(parse_duration_ms(delay, "delay"), relative=True)
    return Instant(parse_instant_ms(at, "at"), relative=False)


def _expires(value: object) -> Instant | None:
    if value is None:
        return None
    if isinstance(value, str | timedelta):
        return Instant(parse_duration_ms(value, "expires"), relative=True)
    ms = parse_instant_ms(value, "expires")
    if ms == 0:  # stands for never in a record
        raise EnvelopeError("expires: expected epoch ms above 0; got 0")
    return Instant(ms, relative=False)


def _headers(given: HeadersGiven | None) -> Headers:
    if given is None:
        return ()
    try:
        pairs = given.items() if isinstance(given, Mapping) else _pairs(given)
        return tuple([(_header_name(name), _header_value(name, value)) for name, value in pairs])
    except (TypeError, ValueError) as error:
        raise EnvelopeError(
            f"headers: expected a mapping or pairs of name and value; got {shown(given)}"
        ) from error


def _pairs(given: Any) -> Any:
    """Refuse text among pairs: of two characters, it could be unpacked."""
    pairs = list(given)
    may_be_text = not _PAIR_TYPES.issuperset(map(type, pairs))  # seldom: no call for each pair
    if may_be_text and any(isinstance(each, str | bytes) for each in pairs):
        raise TypeError("text")
    return pairs


_PAIR_TYPES = frozenset((tuple, list))


def _header_name(name: object) -> str:
    return _known_name(name) if type(name) is str else checked_text("header name", name, 1, 255)


@lru_cache(maxsize=4096)  # the names recur
def _known_name(name: str) -> str:
    return checked_text("header name", name, 1, 255)


def _header_value(name: object, value: object) -> HeaderValue:
    if type(value) is str and value.isascii():  # most are, and showing a name has its cost
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        return utf8(f"header {shown(name)}", value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, Ext) and value.code == AMQP_FIELD:
        return _amqp_field(name, value)
    expected = "bytes, str, bool, None or an int of 64 bits"
    raise EnvelopeError(f"header {shown(name)}: expected {expected}; got {shown(value)}")


def _amqp_field(name: object, value: Ext) -> Ext:
    try:
        field_value(value)  # a broker ends the connection of who sends a damaged one
    except ValueError as error:
        raise EnvelopeError(f"header {shown(name)}: expected a field of AMQP: {error}") from error
    return Ext(AMQP_FIELD, bytes(value.data))


def _properties(given: Mapping[str, object], json: object) -> Properties:
    exact = {name: _property(name, given[name]) for name in given if name in PROPERTY_NAMES}
    if json is not UNSET and exact.get("content_type") is None:
        exact["content_type"] = JSON
    if not exact:
        return NO_PROPERTIES
    try:
        return msgspec.convert(exact, Properties)
    except msgspec.ValidationError as error:
        known = ", ".join(Properties.__struct_fields__)
        raise EnvelopeError(f"properties: expected AMQP's ({known}): {error}") from error


def _property(name: str, value: object) -> object:
    if isinstance(value, str):
        return sized(name, utf8(name, value), 0, SHORT_BYTES)
    if isinstance(value, int) and not isinstance(value, bool):
        return whole_or_none(name, value, 0, _MOST.get(name, 2**64 - 1))
    return value


def _target(value: object) -> Target | None:
    if value is None:
        return None
    if not isinstance(value, Target):
        raise EnvelopeError(f"target: expected a Target; got {shown(value)}")
    given = value.as_dict()
    return Target(
        **{name: checked_text(f"target.{name}", given[name], 0, SHORT_BYTES) for name in given}
    )


def _bytes_or_none(name: str, value: object) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return utf8(name, value).encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if value is UNSET:
        raise EnvelopeError("body, json: expected exactly one of the two; got neither")
    hint = "; pass it as json" if name == "body" else ""
    raise EnvelopeError(f"{name}: expected bytes, text or None; got {type(value).__name__}{hint}")


def _json_bytes(body: object, value: object) -> bytes:
    if body is not UNSET:
        raise EnvelopeError("body, json: expected exactly one of the two; got both")
    return encode_json(value)
