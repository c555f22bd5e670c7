"""Base classes and field types for the models of a broker type: settings and targets.

Both are pydantic models. The docstring of a field becomes its description in the JSON schema.

    class FileSettings(BrokerSettings):
        type: Literal["file"]
        directory: AtUse[Text]
        \"\"\"Where the files are.\"\"\"
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from duebridge.envelope import SHORT_BYTES, Target
from duebridge.errors import ConfigError
from duebridge.errors import did_you_mean as did_you_mean  # connectors may take them from here
from duebridge.errors import unknown_name as unknown_name

Fault: TypeAlias = tuple[tuple[str | int, ...], str]  # path below a model, and message

T = TypeVar("T")
_AT_USE = object()
_Scalar: TypeAlias = str | int | float | bool
_SCALAR = {"type": ["string", "number", "boolean"]}


def fault(text: str) -> PydanticCustomError:
    """Return an error whose message is `text`, to raise in a validator."""
    return PydanticCustomError("config", "{text}", {"text": text})


def expected(text: str) -> PydanticCustomError:
    """Return an error that states the expected value; the loader appends "; got ..."."""
    return PydanticCustomError("expected", "{text}", {"text": text})


def refuse(model: BaseModel, faults: Iterable[Fault]) -> None:
    """Raise all faults together; paths are relative to the model being checked."""
    if found := list(faults):
        raise ValidationError.from_exception_data(
            type(model).__name__,
            [{"type": fault(text), "loc": path, "input": None} for path, text in found],
        )


class MistakeCollector:
    """Collects what several checks refuse, so that a user learns of all mistakes at once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep the `ConfigError` of a check, which ends there, and go on behind it."""
        try:
            yield
        except ConfigError as error:
            self.add(error)

    def add(self, error: ConfigError) -> None:
        """Keep an error."""
        self._lines += str(error).splitlines()

    def raise_any(self) -> None:
        """Raise one `ConfigError` with a line for each mistake, if there are any."""
        if self._lines:
            raise ConfigError("\n".join(self._lines))


def _option(value: object) -> object:
    if isinstance(value, str | int | float):
        return value
    raise expected("text, a number, true or false")


def _deep_option(value: object) -> object:
    inner = value.values() if isinstance(value, dict) else [value]
    if all(isinstance(item, str | int | float) for item in inner):
        return value
    raise expected("text, a number, true or false, or a mapping of those")


def _short_text(value: str) -> str:
    if len(value.encode()) > SHORT_BYTES:
        raise expected(f"at most {SHORT_BYTES} bytes in UTF-8")
    return value


_Option = Annotated[_Scalar, PlainValidator(_option), WithJsonSchema(_SCALAR)]
_DeepOption = Annotated[
    _Scalar | dict[str, _Scalar],
    PlainValidator(_deep_option),
    WithJsonSchema({"anyOf": [_SCALAR, {"type": "object", "additionalProperties": _SCALAR}]}),
]

Text = Annotated[str, Field(min_length=1)]
ShortText = Annotated[str, Field(max_length=SHORT_BYTES), AfterValidator(_short_text)]
Options = Annotated[dict[str, _Option], Field(repr=False)]  # may hold a password
DeepOptions = Annotated[dict[str, _DeepOption], Field(repr=False)]
AtUse = Annotated[T, Field(repr=False), _AT_USE]
"""A setting that keeps its references (`${VAR}`) until a connection is opened."""


class Model(BaseModel):
    """The base of all models: frozen, rejects unknown keys, validates defaults."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_block(cls, given: Any) -> Any:
        """Treat an empty block, such as `worker:` with all lines commented out, as no settings."""
        return {} if given is None else given


class BrokerSettings(Model):
    """The settings below `brokers.NAME`; a subclass narrows `type` to a Literal."""

    type: str

    @classmethod
    def is_at_use(cls, field: str) -> bool:
        """Return whether a field keeps its references until a connection is opened."""
        info = cls.model_fields.get(field)
        return info is not None and _AT_USE in info.metadata


class TargetSettings(Model):
    """The fields of a target; a subclass adds those of its type, all text."""

    broker: str
    """A name under `brokers`."""

    def target(self) -> Target:
        """Return the target as deliveries carry it."""
        return Target(**dict(self))

    def faults(self) -> Iterator[Fault]:
        """Yield the faults of a concrete target; globs of `allow_targets` are not checked."""
        yield from ()


def needs_any(*keys: str) -> JsonDict:
    """Return a JSON schema for text under at least one of these keys."""
    return {"anyOf": [{"required": [key], "properties": {key: {"type": "string"}}} for key in keys]}
