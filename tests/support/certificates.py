"""Certificates as an operator hands them over: PEM files, signed by an authority of our own."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs

USER = "duebridge"  # the client certificate's common name
KEY_PASSWORD = "canary-key-5b1d"  # noqa: S105 - of a key that nobody else has


class Certificates(NamedTuple):
    """Paths of PEM files. The server's is for the name `localhost` and for nothing else."""

    ca: str
    other_ca: str
    server: str  # its key and its certificate, as Kafka wants them
    server_certificate: str
    server_key: str
    client: str
    client_key: str
    locked_key: str  # the same, behind KEY_PASSWORD


def make_certificates(home: Path) -> Certificates:
    authority = trustme.CA()
    server, client = authority.issue_cert("localhost"), authority.issue_cert(USER, common_name=USER)
    paths = [home / f"{name.replace('_', '-')}.pem" for name in Certificates._fields]
    found = Certificates(*map(str, paths))
    authority.cert_pem.write_to_path(found.ca)
    trustme.CA().cert_pem.write_to_path(found.other_ca)
    _write_key(server, found.server_key, NoEncryption())
    _write_key(client, found.client_key, NoEncryption())
    _write_key(client, found.locked_key, BestAvailableEncryption(KEY_PASSWORD.encode()))
    _write_chain(server, found.server_certificate)
    _write_chain(client, found.client)
    both = Path(found.server_key).read_text() + Path(found.server_certificate).read_text()
    Path(found.server).write_text(both)
    return found


def tls_options(files: Certificates, port: int, asks_clients: str = "no") -> list[str]:
    """Return the options of a redis-server that speaks TLS on this port, to its peers too."""
    words = [
        "--tls-port",
        str(port),
        "--tls-auth-clients",
        asks_clients,
        "--tls-replication",
        "yes",
    ]
    words += ["--tls-cert-file", files.server_certificate, "--tls-key-file", files.server_key]
    return [*words, "--tls-ca-cert-file", files.ca]


def _write_chain(issued: trustme.LeafCert, path: str) -> None:
    Path(path).write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))


def _write_key(issued: trustme.LeafCert, path: str, lock: KeySerializationEncryption) -> None:
    """Write the key as PKCS #8, the only form that Kafka reads."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    Path(path).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))


class _Lines(logging.Handler):
    """Keeps every line; caplog forgets those of the test itself when its fixtures end."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Let everybody log whatever they can, and find no canary in it, which every secret has."""
    for name in ("", "kafka", "pika", "redis"):
        caplog.set_level(logging.DEBUG, name)
    heard = _Lines()
    logging.getLogger().addHandler(heard)
    with capture_logs() as ours:
        yield
    logging.getLogger().removeHandler(heard)
    assert [line for line in [*heard.lines, repr(ours)] if "canary" in line] == []
