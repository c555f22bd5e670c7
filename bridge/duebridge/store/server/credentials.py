"""The user and the password in a store's URL, read again whenever a connection is made.

So a password that changes in its file is used by the next connection, without a restart.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.credentials import CredentialProvider

from duebridge.errors import ConfigError

Login: TypeAlias = "tuple[()] | tuple[str] | tuple[str, str]"


class StoreCredentials(CredentialProvider):
    """Gives the client user and password at each connect, also to a Sentinel's or Cluster's nodes.

    While the URL cannot be read, such as in the moment when a file is replaced, the last ones stay.
    """

    def __init__(
        self,
        url: str,
        read_url: Callable[[], str],
        login_in: "Callable[[str], Login] | None" = None,
    ) -> None:
        """Begin with the login in `url`; `read_url` returns the URL as it is now."""
        self._read_url = read_url
        self._login_in = login_in or _login_in
        self._last = self._login_in(url)

    def __repr__(self) -> str:
        """Show no secret."""
        return "StoreCredentials(***)"

    def get_credentials(self) -> Login:  # type: ignore[override]  # never empty
        """Return user and password, or the password alone."""
        with suppress(ConfigError, ValueError):
            self._last = self._login_in(self._read_url()) or self._last
        return self._last


def split_login(
    url: str, read_url: Callable[[], str] | None = None
) -> tuple[str, dict[str, StoreCredentials]]:
    """Return a URL without its login, and the client's option that gives it.

    Without `read_url` it stays the login in `url`; without a login there is no option. Raises
    `ValueError`.
    """
    if not _login_in(url):
        return url, {}
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    bare = url.replace(f"://{login}{at}", "://", 1)
    return bare, {"credential_provider": StoreCredentials(url, read_url or (lambda: url))}


def sentinels_login(
    url: str, read_url: Callable[[], str] | None = None
) -> dict[str, StoreCredentials]:
    """Return the client's option that gives the Sentinels' own login, none where they have none."""
    if not _sentinels_login_in(url):
        return {}
    login = StoreCredentials(url, read_url or (lambda: url), _sentinels_login_in)
    return {"credential_provider": login}


def _sentinels_login_in(url: str) -> Login:
    given = dict(parse_qsl(urlsplit(url).query))
    return _login(given.get("sentinel_username", ""), given.get("sentinel_password", ""))


def _login_in(url: str) -> Login:
    """Return the login of a URL as `AUTH` takes it."""
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    user, _, password = (unquote(part) for part in login.partition(":"))
    return _login(user, password) if at else ()


def _login(user: str, password: str) -> Login:
    if not (user or password):
        return ()
    return (user, password) if user else (password,)
