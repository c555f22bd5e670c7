"""The SASL user and password, read again at each connect, so that a secret's file may change."""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from duebridge.errors import ConfigError

LOGIN = "duebridge.login"  # where a client's configuration has the `Login`


class Credentials(NamedTuple):
    """A user and a password; never shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Show no secret."""
        return "Credentials(***)"


class Login:
    """Reads user and password of a broker's settings; `None` where they have none."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings
        self._last: Credentials | None = None

    def current(self) -> Credentials | None:
        """Return them as they are now; the last ones while a file is being replaced."""
        with suppress(ConfigError):
            self._last = _credentials_in(self._settings)
        return self._last


def _credentials_in(settings: Mapping[str, object]) -> Credentials | None:
    options = settings.get("options")
    if not isinstance(options, Mapping) or "sasl.password" not in options:
        return None
    return Credentials(str(options.get("sasl.username", "")), str(options["sasl.password"]))
