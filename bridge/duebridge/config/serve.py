"""The settings of the HTTP interface."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import WithJsonSchema

from duebridge.config.fields import Ms, Whole, within
from duebridge.ports.settings import Fault, Model, Text, expected, refuse

_LISTEN = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})"
_HOST_AND_PORT = re.compile(_LISTEN)
MAX_PORT = 65_535


class ListenAddress(NamedTuple):
    """A name or an address, and a port; 0 takes a free one."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(text: str) -> str:
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None or int(found[2]) > MAX_PORT:
        raise expected("HOST:PORT, such as 127.0.0.1:8480 or [::1]:8480")
    return text


Listen = Annotated[
    Text,
    AfterValidator(_listen),
    WithJsonSchema({"type": "string", "pattern": rf"^{_LISTEN}$|\$\{{"}),
]


class Serve(Model):
    """The HTTP interface of `duebridge serve`: where it listens, and who may use it."""

    listen: Listen = "127.0.0.1:8480"
    """HOST:PORT, [::]:PORT for IPv6 and IPv4; without tokens it must be a loopback address."""
    tokens: Annotated[Text | None, Field(repr=False)] = None
    """A reference to the file of tokens, "${file:/PATH}"; `duebridge token` makes them."""
    rate: Annotated[Whole, Field(ge=1)] | None = None
    """Rate limit per token and process: envelopes plus other requests a second."""
    connections: Annotated[Whole, Field(ge=1)] = 1000
    """Most connections at once; further ones are answered 503, but for /livez."""
    request_timeout: Annotated[Ms, within("100ms", "24h")] = "30s"  # type: ignore[assignment]
    """How long a client may take to send a request, or leave an answer unread."""

    @property
    def address(self) -> ListenAddress:
        """The address of `listen`."""
        host, _, port = self.listen.rpartition(":")
        return ListenAddress(host.strip("[]"), int(port))

    @model_validator(mode="after")
    def _is_guarded(self) -> Self:
        refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        if self.tokens is None and not self.address.is_local:
            text = "expected tokens where it listens beyond this machine"
            yield ("tokens",), f"{text}; got none at {self.listen}"
