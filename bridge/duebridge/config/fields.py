"""What a value in the configuration may look like, and how a model says what is wrong with one.

An error of type `expected` says what was expected and leaves "; got ..." to
`duebridge.config.load`, which knows the text of the file. Where an error of type `config` repeats
a value itself, after
"; got ", the same module replaces what came of a reference, so that it is never shown.
"""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from duebridge.config.store_url import url_fault
from duebridge.durations import DURATION_PATTERN, format_ms, parse_duration_ms
from duebridge.errors import ConfigError, EnvelopeError
from duebridge.store.keys import checked_name

MAX_WRITTEN = 64  # characters of a duration or a size
MAX_SHORT_BYTES = 255  # what AMQP takes for a name

# As JSON Schema has them, for editors: what the loader takes is decided elsewhere.
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
NAME_EXPECTED = "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
REFERENCE = r"\$\{"  # somewhere in the text
_NOT_IN_YAML = ", or a timedelta"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")

Fault: TypeAlias = tuple[tuple[str | int, ...], str]  # where, and what is the matter there


_SIZE = re.compile(r"([0-9]{1,9})(B|KiB|MiB|GiB)")
_BYTES_PER_UNIT = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


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


def fault(text: str) -> PydanticCustomError:
    """Return an error whose message is `text`, to raise in a validator."""
    return PydanticCustomError("config", "{text}", {"text": text})


def refuse(model: BaseModel, faults: Iterable[Fault]) -> None:
    """Raise every fault at once, each with its place below the model that is being checked."""
    if found := list(faults):
        raise ValidationError.from_exception_data(
            type(model).__name__,
            [{"type": fault(text), "loc": path, "input": None} for path, text in found],
        )


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return `, did you mean this?`, or nothing where no known word is close."""
    close = get_close_matches(given, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""


def _expected(what: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "{text}", {"text": what})


def _duration(value: object) -> int:
    try:
        return parse_duration_ms(value, "duration")
    except EnvelopeError as error:
        what = _what(str(error)).removeprefix("duration: expected ").replace(_NOT_IN_YAML, "")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        hint = " (a bare number: seconds or milliseconds?)" if is_number else ""
        raise _expected(what + hint) from None


def _size(value: object) -> int:
    try:
        return parse_size_bytes(value)
    except ValueError as error:
        raise _expected(_what(str(error)).removeprefix("expected ")) from None


def _what(message: str) -> str:
    return message.partition("; got ")[0]


def _short(value: object) -> object:
    # Python itself gives up, with another error, on numbers of thousands of digits
    if isinstance(value, str) and len(value) > MAX_WRITTEN:
        raise _expected(f"at most {MAX_WRITTEN} characters")
    return value


def _whole(value: object) -> int:
    # pydantic alone would take true for 1 and 2.0 for 2
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)  # a reference gives text
    raise _expected("a whole number")


def _option(value: object) -> object:
    if isinstance(value, str | int | float):
        return value
    raise _expected("text, a number, true or false")


def _deep_option(value: object) -> object:
    inner = value.values() if isinstance(value, dict) else [value]
    if all(isinstance(each, str | int | float) for each in inner):
        return value
    raise _expected("text, a number, true or false, or a mapping of those")


def _name(value: str) -> str:
    try:
        return checked_name("name", value)
    except ConfigError as error:
        raise fault(str(error).removeprefix("name: ")) from None


def _store_url(url: str) -> str:
    found = "" if "$" in url else url_fault(url)  # a reference is looked at once it is resolved
    if found:
        raise fault(found)
    return url


def _short_text(value: str) -> str:
    if len(value.encode()) > MAX_SHORT_BYTES:
        raise _expected(f"at most {MAX_SHORT_BYTES} bytes in UTF-8")
    return value


def _written(pattern: str, expected: str) -> WithJsonSchema:
    """Return the JSON Schema of text that is of a pattern, or holds a reference."""
    message = f"expected {expected}"
    either = rf"^({pattern})$|{REFERENCE}"
    return WithJsonSchema({"type": "string", "pattern": either, "patternErrorMessage": message})


def _as_text(form: Callable[[int], str]) -> PlainSerializer:
    """Return what writes a value in the form in which the file has it, in JSON only."""
    return PlainSerializer(form, return_type=str, when_used="json")


def not_yet(*values: str) -> BeforeValidator:
    """Return a validator that refuses what duebridge will know one day, and says so."""

    def check(value: object) -> object:
        if value in values:
            raise fault(f"{value}: not implemented yet")
        return value

    return BeforeValidator(check)


_Short = BeforeValidator(_short)
_DURATION = _written(rf"\s*{DURATION_PATTERN}\s*", "a duration such as 500ms, 15m, 1h30m, 3d")
_SIZE_WRITTEN = _written(r"\s*[0-9]{1,9}(B|KiB|MiB|GiB)\s*", "a size such as 512B, 64MiB")
_SCALAR = {"type": ["string", "number", "boolean"]}

Ms = Annotated[int, BeforeValidator(_duration), _Short, _DURATION, _as_text(format_ms)]
Bytes = Annotated[int, BeforeValidator(_size), _Short, _SIZE_WRITTEN, _as_text(format_bytes)]
Whole = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[str, Field(min_length=1)]
StoreUrl = Annotated[Text, AfterValidator(_store_url)]
ShortText = Annotated[str, Field(max_length=MAX_SHORT_BYTES), AfterValidator(_short_text)]
Name = Annotated[str, AfterValidator(_name), _written(NAME, NAME_EXPECTED)]
_Scalar: TypeAlias = str | int | float | bool
_Option = Annotated[_Scalar, PlainValidator(_option), WithJsonSchema(_SCALAR)]
_DeepOption = Annotated[
    _Scalar | dict[str, _Scalar],
    PlainValidator(_deep_option),
    WithJsonSchema({"anyOf": [_SCALAR, {"type": "object", "additionalProperties": _SCALAR}]}),
]
Options = Annotated[dict[str, _Option], Field(repr=False)]  # may hold a password
DeepOptions = Annotated[dict[str, _DeepOption], Field(repr=False)]
Version = Annotated[Literal[1], BeforeValidator(_whole)]


class Model(BaseModel):
    """What all models share: frozen, nothing unknown, a default checked like a given value."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_block(cls, given: Any) -> Any:
        """Take `worker:` with all its lines commented out for a block without settings."""
        return {} if given is None else given
