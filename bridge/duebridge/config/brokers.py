"""Validates `brokers.NAME` and the targets of routes with the models of their broker types."""

from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import FieldSerializationInfo, PlainSerializer, PlainValidator, ValidationError
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError, PydanticKnownError

from duebridge.config.secrets import resolve
from duebridge.envelope import Target
from duebridge.errors import ConfigError, unknown_name
from duebridge.ports.broker import BrokerType
from duebridge.ports.discovery import broker_type
from duebridge.ports.settings import BrokerSettings, Model, TargetSettings, fault, refuse

# A placeholder in the JSON schema; `duebridge.config.schema` replaces it by the installed models.
PLACEHOLDER = "x-duebridge"
BROKER, TARGET = "broker", "target"

NO_MAPPING, _NO_TEXT = PydanticKnownError("dict_type"), PydanticKnownError("string_type")
_MISSING = PydanticKnownError("missing")


class WrittenTarget(NamedTuple):
    """A target as written in the file, with all brokers of the file."""

    value: Any
    brokers: Any
    may_be_glob: bool


def type_of(settings: object) -> BrokerType | None:
    """Return the broker type that `brokers.NAME` names; None if it is not installed."""
    try:
        return broker_type(_type_name(settings))
    except ConfigError:
        return None


def with_brokers(route: Any, brokers: Any) -> Any:
    """Return a route with the brokers attached to its targets; malformed values are unchanged."""
    if not isinstance(route, dict):
        return route
    found = dict(route)
    for key in ("target", "dead_letter"):
        if isinstance(found.get(key), dict):
            found[key] = WrittenTarget(found[key], brokers, may_be_glob=False)
    if isinstance(found.get("allow_targets"), list | tuple):
        given = found["allow_targets"]
        found["allow_targets"] = [
            WrittenTarget(target, brokers, may_be_glob=True) if isinstance(target, dict) else target
            for target in given
        ]
    return found


def _type_name(settings: object) -> str:
    """Return the name of a broker's type, empty if missing; raises `ConfigError`."""
    if isinstance(settings, BrokerSettings):
        return settings.type
    name = settings.get("type") if isinstance(settings, dict) else None
    return resolve(name) if isinstance(name, str) else ""


def broker_settings(given: Any) -> BrokerSettings:
    """Return the settings of a broker by the model of its type.

    Raises `ValidationError`, or `PydanticKnownError` for what is no mapping.
    """
    if isinstance(given, BrokerSettings):
        return given
    settings = {} if given is None else given
    if not isinstance(settings, dict):
        raise NO_MAPPING
    name = settings.get("type")
    if not isinstance(name, str):
        raise error_at("type", _MISSING if name is None else _NO_TEXT)
    try:
        model = broker_type(_type_name(settings)).settings
    except ConfigError as error:
        raise error_at("type", fault(str(error))) from None
    return model.model_validate(_resolved(settings, model))


def _resolved(given: dict[str, Any], model: type[BrokerSettings]) -> dict[str, Any]:
    """Return the settings with references resolved, except those resolved at use."""
    found = dict(given)
    for key, value in given.items():
        if isinstance(value, str) and not model.is_at_use(key):
            try:
                found[key] = resolve(value)
            except ConfigError as error:
                raise error_at(key, fault(str(error))) from None
    return found


def _target(given: Any) -> Target:
    if isinstance(given, Target):
        return given
    if not isinstance(given, WrittenTarget):
        raise NO_MAPPING
    kind = named_type(given.value, given.brokers)
    if kind is None:  # reported at the broker
        return Target(given.value["broker"])
    return _checked(kind.target.model_validate(given.value), given.may_be_glob)


def named_type(given: dict[str, Any], brokers: Any) -> BrokerType | None:
    """Return the type of the broker that a block names; None if a mistake is reported there."""
    name = given.get("broker")
    if not isinstance(name, str):
        raise error_at("broker", _MISSING if name is None else _NO_TEXT)
    if not isinstance(brokers, dict):  # reported at the brokers block
        return None
    if name not in brokers:
        raise error_at("broker", fault(unknown_name("a broker of this file", name, brokers)))
    return type_of(brokers[name])


def _checked(settings: TargetSettings, may_be_glob: bool) -> Target:
    if not may_be_glob:
        refuse(settings, settings.faults())
    return settings.target()


def error_at(key: str, error: PydanticCustomError | PydanticKnownError) -> ValidationError:
    """Return an error at one key of the block that is being validated."""
    kind = error.type if isinstance(error, PydanticKnownError) else error
    return ValidationError.from_exception_data("", [{"type": kind, "loc": (key,), "input": None}])


def dump_fields(settings: Model | None, info: FieldSerializationInfo) -> dict[str, Any] | None:
    """Return the fields of a model of a broker type, which the field's own model does not have."""
    if settings is None:
        return None
    return settings.model_dump(mode=str(info.mode), exclude_none=info.exclude_none)


Broker: TypeAlias = Annotated[
    BrokerSettings,
    PlainValidator(broker_settings),
    PlainSerializer(dump_fields),
    WithJsonSchema({PLACEHOLDER: BROKER}),
]
RouteTarget: TypeAlias = Annotated[
    Target,
    PlainValidator(_target),
    PlainSerializer(Target.as_dict),
    WithJsonSchema({PLACEHOLDER: TARGET}),
]
