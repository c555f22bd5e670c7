"""Discovers broker types by entry point; loads a type on first use."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points, metadata
from traceback import walk_tb
from types import MappingProxyType

from duebridge.errors import ConfigError, unlisted_name
from duebridge.ports.broker import BrokerType

GROUP = "duebridge.brokers"


class ClientMissing(ConfigError):
    """A package that a broker type needs is not installed; `remedy` is the install command."""

    def __init__(self, broker: str, missing: str, remedy: str) -> None:
        self.missing, self.remedy = missing, remedy
        super().__init__(f"brokers.{broker}: {missing}; {remedy}")


@cache
def _installed() -> Mapping[str, EntryPoint]:
    found = sorted(entry_points(group=GROUP))
    return MappingProxyType({entry_point.name: entry_point for entry_point in found})


def installed_types() -> tuple[str, ...]:
    """Return the names of all installed broker types, sorted."""
    return tuple(_installed())


@cache
def broker_type(name: str) -> BrokerType:
    """Return a broker type, loading it on first use.

    Raises `ConfigError` with the known types, the package to install, or what its entry point does.
    """
    if name not in _installed():
        hint = f"; type: {_install(name)}" if name in _extras() else ""
        raise ConfigError(unlisted_name(name, installed_types()) + hint)
    entry_point = _installed()[name]
    try:
        found = entry_point.load()
    except ImportError as error:
        raise ConfigError(_missing(name, error)) from error
    except Exception as error:  # of a connector's module
        raise _unloadable(entry_point, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, BrokerType):
        kind = f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__
        raise _unloadable(entry_point, kind)
    return found


@cache
def loadable_types() -> Mapping[str, BrokerType]:
    """Return the installed broker types by name; logs and leaves out those that do not load.

    One that no configuration names harms nobody.
    """
    import structlog  # lazy: producers import this module and need no log

    found: dict[str, BrokerType] = {}
    for name in installed_types():
        try:
            found[name] = broker_type(name)
        except ConfigError as error:
            structlog.get_logger().warning("broker_type_left_out", type=name, error=str(error))
    return MappingProxyType(found)


def target_fields() -> tuple[str, ...]:
    """Return the union of the target fields of all loadable types, `broker` first."""
    models = (kind.target for kind in loadable_types().values())
    return tuple(dict.fromkeys(field for model in models for field in model.model_fields))


def third_party_of(error: BaseException) -> str:
    """Return the package of another distribution's connector that raised an error; or ''.

    Also where it was a library, or a part of duebridge, that the connector called.
    """
    theirs = {
        each.module.partition(".")[0]
        for each in _installed().values()
        if each.dist is None or each.dist.name != "duebridge"
    }
    frames = walk_tb(error.__traceback__)
    called = (frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in frames)
    return next((name for name in called if name in theirs), "")


@contextmanager
def naming(broker: str, kind: str, client: str = "") -> Iterator[None]:
    """Prefix errors of a broker type with its broker: `brokers.orders.options.acks: ...`.

    Raises `ClientMissing` for an `ImportError`; a client with an extra of its own needs that one.
    """
    try:
        yield
    except ImportError as error:
        remedy = _remedy((client, kind), error)
        raise ClientMissing(broker, _missing(kind, error), remedy) from error
    except ConfigError as error:
        place = f"brokers.{broker}."  # which a reference that is not resolved has already
        lines = (line.removeprefix(place) for line in str(error).splitlines())
        raise ConfigError("\n".join(f"{place}{line}" for line in lines)) from None


def _unloadable(entry_point: EntryPoint, got: str) -> ConfigError:
    where = f"entry point {entry_point.name} = {entry_point.value} of {GROUP}"
    return ConfigError(f"{where}: expected an instance of BrokerType; got {got}")


def _missing(kind: str, error: ImportError) -> str:
    return f"type {kind} needs the Python package {error.name}, which is not installed"


def _remedy(named: Iterable[str], error: ImportError) -> str:
    extra = next((each for each in named if each in _extras()), "")
    return f"type: {_install(extra) if extra else f'pip install {error.name}'}"


def _install(extra: str) -> str:
    return f"pip install 'duebridge[{extra}]'"


def _extras() -> list[str]:
    return metadata("duebridge").get_all("Provides-Extra") or []
