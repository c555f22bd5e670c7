"""Field types that parse configuration text: durations, sizes, names, numbers.

An error of type `expected` states the expected value; `duebridge.config.load`, which knows the
file's text, appends "; got ...". Where an error of type `config` repeats
a value after "; got ", that module replaces a resolved reference by the reference.
"""

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer
from pydantic.json_schema import WithJsonSchema

from duebridge.config.store_url import url_fault
from duebridge.durations import DURATION_PATTERN, format_ms, parse_duration_ms
from duebridge.errors import ConfigError, EnvelopeError
from duebridge.ports.settings import Text, expected, fault

MAX_WRITTEN = 64  # characters of a duration or a size
MAX_BODY_BYTES = 1024 * 1024  # upper bound of max_body: no other call is served while it is written

# For the JSON Schema only (editors); the loader validates separately.
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
NAME_EXPECTED = "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
_NAME = re.compile(NAME)
REFERENCE = r"\$\{"  # somewhere in the text
_NOT_IN_YAML = ", or a timedelta"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")

_SIZE = re.compile(r"([0-9]{1,9})(B|KiB|MiB|GiB)")
_BYTES_PER_UNIT = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def checked_name(kind: str, name: str) -> str:
    """Return the name of a namespace or route; raises `ConfigError` for an invalid one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{kind}: expected {NAME_EXPECTED}; got {name!r}")
    return name


def parse_size_bytes(value: object) -> int:
    """Return bytes; raises `ValueError` for a bare number or an unreadable value.

    >>> parse_size_bytes("64MiB")
    67108864
    """
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'expected a size such as "512B", "256KiB", "64MiB"; got {value!r}')
    return int(match[1]) * _BYTES_PER_UNIT[match[2]]


def format_bytes(size_bytes: int) -> str:
    """Return the shortest exact size text.

    >>> format_bytes(67108864), format_bytes(1000), format_bytes(0)
    ('64MiB', '1000B', '0B')
    """
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _BYTES_PER_UNIT[unit] == 0:
            return f"{size_bytes // _BYTES_PER_UNIT[unit]}{unit}"
    return f"{size_bytes}B"


def _duration(value: object) -> int:
    try:
        return parse_duration_ms(value, "duration")
    except EnvelopeError as error:
        what = _what(str(error)).removeprefix("duration: expected ").replace(_NOT_IN_YAML, "")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        hint = " (a bare number: seconds or milliseconds?)" if is_number else ""
        raise expected(what + hint) from None


def within(least: str, most: str) -> AfterValidator:
    """Return a check that refuses a duration beyond the bounds, which are written as in a file."""
    bounds = range(parse_duration_ms(least), parse_duration_ms(most) + 1)

    def checked(ms: int) -> int:
        if ms not in bounds:
            raise expected(f"{least} to {most}")
        return ms

    return AfterValidator(checked)


def _size(value: object) -> int:
    try:
        return parse_size_bytes(value)
    except ValueError as error:
        raise expected(_what(str(error)).removeprefix("expected ")) from None


def _body_size(size_bytes: int) -> int:
    if size_bytes > MAX_BODY_BYTES:
        most = format_bytes(MAX_BODY_BYTES)
        raise expected(f"at most {most}, since the store serves nobody else while it writes a body")
    return size_bytes


def _what(message: str) -> str:
    return message.partition("; got ")[0]


def _short(value: object) -> object:
    # int() raises another error for numbers of thousands of digits
    if isinstance(value, str) and len(value) > MAX_WRITTEN:
        raise expected(f"at most {MAX_WRITTEN} characters")
    return value


def _whole(value: object) -> int:
    # pydantic would accept true as 1 and 2.0 as 2
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)  # a resolved reference is text
    raise expected("a whole number")


def _name(value: str) -> str:
    try:
        return checked_name("name", value)
    except ConfigError as error:
        raise fault(str(error).removeprefix("name: ")) from None


def _store_url(url: str) -> str:
    found = "" if "$" in url else url_fault(url)  # references are checked after they are resolved
    if found:
        raise fault(found)
    return url


def _written(pattern: str, meaning: str) -> WithJsonSchema:
    """Return the JSON Schema of text that matches a pattern or holds a reference."""
    message = f"expected {meaning}"
    either = rf"^({pattern})$|{REFERENCE}"
    return WithJsonSchema({"type": "string", "pattern": either, "patternErrorMessage": message})


def _as_text(form: Callable[[int], str]) -> PlainSerializer:
    """Return a serializer that writes a value in the file's form, for JSON only."""
    return PlainSerializer(form, return_type=str, when_used="json")


_Short = BeforeValidator(_short)
_DURATION = _written(rf"\s*{DURATION_PATTERN}\s*", "a duration such as 500ms, 15m, 1h30m, 3d")
_SIZE_WRITTEN = _written(r"\s*[0-9]{1,9}(B|KiB|MiB|GiB)\s*", "a size such as 512B, 64MiB")

Ms = Annotated[int, BeforeValidator(_duration), _Short, _DURATION, _as_text(format_ms)]
Bytes = Annotated[int, BeforeValidator(_size), _Short, _SIZE_WRITTEN, _as_text(format_bytes)]
BodyBytes = Annotated[Bytes, AfterValidator(_body_size)]
Whole = Annotated[int, BeforeValidator(_whole)]
StoreUrl = Annotated[Text, AfterValidator(_store_url)]
Name = Annotated[str, AfterValidator(_name), _written(NAME, NAME_EXPECTED)]
Version = Annotated[Literal[1], BeforeValidator(_whole)]
