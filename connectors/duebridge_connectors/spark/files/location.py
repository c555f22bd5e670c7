"""A place of files: its URI, and the options of its store with their references unresolved.

    configuration ─▶ Stores ─ place(uri) ─▶ Place ─▶ tasks ─ settings() ─▶ resolved, in each process

So what travels to a task or into a message has no secret.
"""

import os
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from duebridge.config.file_locations import (
    FILE,
    PATH_STYLE,
    S3,
    FileAddress,
    Options,
    address_of,
    value_fault,
)
from duebridge.config.load import load_config
from duebridge.config.models import ColdTier, Config
from duebridge.config.secrets import resolve_at
from duebridge.errors import ConfigError

Settings: TypeAlias = Mapping[str, str]
_AWS = {  # Arrow and Hadoop do not read all of them by themselves, object_store does
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


class FileLocation(msgspec.Struct, frozen=True):
    """A file or directory; as text its URI. `at` is where the options were written."""

    uri: str
    options: Options = {}
    at: str = "options"

    def __truediv__(self, name: str) -> "FileLocation":
        """Return the place of a name below this one."""
        return FileLocation(f"{self.uri.rstrip('/')}/{name}", self.options, self.at)

    def __str__(self) -> str:
        return self.uri

    def __fspath__(self) -> str:
        """Return the path of a place on this machine."""
        kind, _, path = self.address
        if kind != FILE:
            raise TypeError(f"{self}: expected a path of this machine")
        return path

    @property
    def address(self) -> FileAddress:
        """The parts of the URI; raises `ConfigError` if no library could open it."""
        try:
            return address_of(self.uri)
        except ValueError as error:
            raise ConfigError(f"a place of files: {error}") from None

    def settings(self) -> Settings:
        """Return the options with references resolved, beside what AWS's variables say.

        Raises `ConfigError`, which names the option, never its value.
        """
        found = _from_environment() if self.address.kind == S3 else {}
        for name, value in self.options.items():
            resolved = resolve_at(f"{self.at}.{name}", value)
            if text := value_fault(name, resolved):
                raise ConfigError(f"{self.at}.{name}: {text}; got another value")
            found[name] = str(resolved).lower() if name == PATH_STYLE else str(resolved)
        return found


def place_of_tier(tier: ColdTier, route: str) -> FileLocation:
    """Return the place of a route's cold tier."""
    return FileLocation(tier.path, tier.options, f"routes.{route}.cold_tier.options")


def location_of(given: "FileLocation | str") -> FileLocation:
    """Return a place; of a text one without options."""
    return given if isinstance(given, FileLocation) else FileLocation(given)


def _from_environment() -> dict[str, str]:
    found = {}
    for name, variables in _AWS.items():
        values = (os.environ.get(variable) for variable in variables)
        if value := next(filter(None, values), None):
            found[name] = value
    return found


def is_path_style(settings: Settings) -> bool:
    """Return whether a bucket is in the path of a request, not in its host.

    It is by default where an endpoint is named: only AWS has a host for each bucket everywhere.
    """
    return settings.get(PATH_STYLE, str("endpoint" in settings).lower()) == "true"


class Stores(msgspec.Struct, frozen=True):
    """The options of each object store that a configuration names, by `s3://BUCKET`."""

    known: Mapping[str, tuple[str, Options]] = {}

    @staticmethod
    def of(config: Config) -> "Stores":
        """Return the stores of all cold tiers: a bucket has one set of options."""
        return Stores(
            {
                address_of(tier.path).store: (f"routes.{name}.cold_tier.options", tier.options)
                for name, route in config.routes.items()
                if (tier := route.cold_tier) is not None and tier.options
            }
        )

    @staticmethod
    def of_file(config: str | None) -> "Stores":
        """Return the stores of a configuration's file, none without one; raises `ConfigError`."""
        return Stores() if config is None else Stores.of(load_config(config))

    def place(self, uri: str) -> FileLocation:
        """Return the place of a URI, with the options of its store."""
        at, options = self.known.get(FileLocation(uri).address.store, ("options", {}))
        return FileLocation(uri, options, at)

    def places(self) -> list[FileLocation]:
        """Return the root of each store."""
        return [FileLocation(store, options, at) for store, (at, options) in self.known.items()]
