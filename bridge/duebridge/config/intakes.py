"""The intakes of a configuration: where delayed messages come in, and where they are due.

`source` and `declare` have the models of the type of the source's broker.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import PlainSerializer, PlainValidator, model_validator
from pydantic.json_schema import SkipJsonSchema, WithJsonSchema

from duebridge.config.brokers import (
    NO_MAPPING,
    PLACEHOLDER,
    RouteTarget,
    WrittenTarget,
    dump_fields,
    error_at,
    named_type,
    type_of,
)
from duebridge.config.fields import Ms, Name
from duebridge.envelope import Target
from duebridge.errors import unknown_name
from duebridge.ports.broker import BrokerType
from duebridge.ports.settings import Fault, Model, fault
from duebridge.ports.source import SourceSettings

SOURCE, DECLARATION = "source", "declaration"  # placeholders in the JSON schema


class AddressedRoute(Protocol):
    """The part of a route that the rules of intakes read."""

    @property
    def target(self) -> Target:
        """The target of its envelopes."""
        ...

    @property
    def dead_letter(self) -> Target | None:
        """The target of its dead envelopes."""
        ...


class WrittenPart(NamedTuple):
    """A `source` or `declare` as written in the file, with its intake's source and all brokers."""

    value: Any
    source: Any
    brokers: Any


class DueTarget(NamedTuple):
    """A target that a route has to permit, for its declared intakes."""

    route: str
    target: Target


def with_brokers(intake: Any, brokers: Any) -> Any:
    """Return an intake with the brokers attached to what their types validate."""
    if not isinstance(intake, dict):
        return intake
    found = dict(intake)
    for key in ("source", "declare"):
        if isinstance(found.get(key), dict):
            found[key] = WrittenPart(found[key], intake.get("source"), brokers)
    if isinstance(found.get("dead_letter"), dict):
        found["dead_letter"] = WrittenTarget(found["dead_letter"], brokers, may_be_glob=False)
    return found


def _source(given: Any) -> SourceSettings:
    if isinstance(given, SourceSettings):
        return given
    if not isinstance(given, WrittenPart):
        raise NO_MAPPING
    kind = named_type(given.value, given.brokers)
    if kind is None:  # reported at the broker
        return SourceSettings(broker=given.value["broker"])
    if kind.source is None:
        text = f"expected a broker of a type that has intakes; got {given.value['broker']!r}"
        raise error_at("broker", fault(text))
    return kind.source.model_validate(given.value)


def _declaration(given: Any) -> Model | None:
    if given is None or isinstance(given, Model):
        return given
    if not isinstance(given, WrittenPart):
        raise NO_MAPPING
    kind = _type_of_source(given)
    if kind is None:  # reported at the source, or at its broker
        return None
    if kind.declaration is None:
        raise fault("unknown key, brokers of this type declare nothing for an intake")
    return kind.declaration.model_validate(given.value)


def _type_of_source(given: WrittenPart) -> BrokerType | None:
    if not isinstance(given.source, dict) or not isinstance(given.brokers, dict):
        return None
    name = given.source.get("broker")
    return type_of(given.brokers.get(name)) if isinstance(name, str) else None


SourcePart: TypeAlias = Annotated[
    SourceSettings,
    PlainValidator(_source),
    PlainSerializer(dump_fields),
    WithJsonSchema({PLACEHOLDER: SOURCE}),
]
DeclarationPart: TypeAlias = Annotated[
    Model | None,
    PlainValidator(_declaration),
    PlainSerializer(dump_fields),
    WithJsonSchema({PLACEHOLDER: DECLARATION}),
]


class IntakeSettings(Model):
    """An intake: a queue or topic whose messages are scheduled by what their headers say."""

    name: Annotated[Name, SkipJsonSchema()]  # its key
    source: SourcePart
    """The queue, stream or topic that messages are taken from."""
    route: Name
    """The route of messages whose header x-route names no other."""
    to: Literal["route", "origin", "declared"] = "route"
    """Where messages are due: declared by default with `declare`; origin takes failed ones back."""
    declare: DeclarationPart = None
    """What `duebridge intake declare` sets up for programs of the delayed-message plugin."""
    on_conflict: Literal["refuse", "replace"] = "refuse"
    """With replace the key or message_id is the id: later messages replace, tombstones cancel."""
    dead_letter: RouteTarget | None = None
    """Where refused messages go; the route's dead_letter if not given."""
    remember: Ms = "10m"  # type: ignore[assignment]
    """How long a delivered id of a queue is known, so that a redelivery stores nothing."""

    @model_validator(mode="before")
    @classmethod
    def _declared_by_default(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("declare") is not None and "to" not in given:
            return {**given, "to": "declared"}
        return given


def named_intake(name: str, intake: Any, brokers: Any) -> Any:
    """Return an intake as its model takes it; malformed values are unchanged."""
    attached = with_brokers({} if intake is None else intake, brokers)
    return {"name": name, **attached} if isinstance(attached, dict) else attached


def intake_faults(
    intakes: Mapping[str, IntakeSettings],
    routes: Mapping[str, AddressedRoute],
    brokers: Mapping[str, Any],
) -> Iterator[Fault]:
    """Yield the faults of intakes among the routes and brokers of their file."""
    yield from _shared_sources(intakes)
    yield from _shared_exchanges(intakes, brokers)
    for name, intake in intakes.items():
        path = ("intakes", name)
        if intake.name != name:
            yield (*path, "name"), "unknown key, an intake's name is its own key"
        elif (route := routes.get(intake.route)) is None:
            text = unknown_name("a route of this file", intake.route, routes)
            yield (*path, "route"), text
        else:
            yield from (((*path, *at), text) for at, text in _faults_beside(intake, route))


def _shared_sources(intakes: Mapping[str, IntakeSettings]) -> Iterator[Fault]:
    """Yield a fault for each intake that reads what an earlier one reads: it would get a part."""
    found: dict[tuple[tuple[str, str], ...], str] = {}
    for name, intake in intakes.items():
        shared = intake.source.shared()
        first = found.setdefault(tuple(shared.items()), name)
        if first != name:
            said = ", ".join(f"{field} {value}" for field, value in shared.items())
            text = f"expected a source of its own; intake {first} reads {said}, too"
            yield ("intakes", name, "source"), f"{text}: each would get a part of the messages"


def _shared_exchanges(
    intakes: Mapping[str, IntakeSettings], brokers: Mapping[str, Any]
) -> Iterator[Fault]:
    """Yield a fault for each intake whose exchange an earlier one declares: both would get all."""
    found: dict[Target, str] = {}
    for name, intake in intakes.items():
        due = _due_target(intake, brokers)
        first = name if due is None else found.setdefault(due, name)
        if first != name:
            text = f"expected an exchange of its own; intake {first} declares this one, too"
            yield ("intakes", name, "declare"), f"{text}: each would get a copy of each message"


def _faults_beside(intake: IntakeSettings, route: AddressedRoute) -> Iterator[Fault]:
    if intake.dead_letter is None and route.dead_letter is None:
        text = f"missing key; refused messages need a place, and route {intake.route} has none"
        yield ("dead_letter",), text
    if intake.to == "origin" and intake.on_conflict == "replace":
        text = "expected refuse beside to: origin, whose ids are those of rounds, not of keys"
        yield ("on_conflict",), f"{text}; got 'replace'"
    if intake.to == "declared" and intake.declare is None:
        yield ("to",), "declared applies only with declare"
    broker = route.target.broker
    if intake.to != "route" and intake.source.broker != broker:
        text = f"expected the broker of the route's target ({broker}), since due messages go to it"
        yield ("source", "broker"), f"{text}; got {intake.source.broker!r}"
    yield from _cycles(intake, route)


def _cycles(intake: IntakeSettings, route: AddressedRoute) -> Iterator[Fault]:
    """Yield a fault for what the intake would send to its own source, and take in for ever.

    With `to: origin` a message goes to the source only where it says that, for so many rounds.
    """
    source = intake.source.target()
    if source is None:
        return
    if source == (intake.dead_letter or route.dead_letter):
        text = f"expected dead letters to go elsewhere than to the source ({source})"
        at = "route" if intake.dead_letter is None else "dead_letter"
        yield (at,), f"{text}: refused messages would come back for ever"
    if intake.to == "route" and source == route.target:
        text = f"expected a route to another target than the source ({source})"
        yield ("route",), f"{text}: due messages would come back for ever"


def due_targets(
    intakes: Mapping[str, IntakeSettings], brokers: Mapping[str, Any]
) -> Iterator[DueTarget]:
    """Yield, by route, the targets that declared intakes are due at, as globs."""
    for intake in intakes.values():
        due = _due_target(intake, brokers)
        if due is not None and intake.to == "declared":
            yield DueTarget(intake.route, due)


def _due_target(intake: IntakeSettings, brokers: Mapping[str, Any]) -> Target | None:
    """Return where the exchange that an intake declares sends what is due, as a glob."""
    kind = type_of(brokers.get(intake.source.broker))
    if kind is None or intake.declare is None:
        return None
    return kind.due_target(intake.source.broker, intake.declare.model_dump())
