"""Builds TLS contexts for clients of the store and the brokers; peers are always verified."""

import ssl
from pathlib import Path
from typing import NamedTuple

from duebridge.errors import ConfigError


class TlsFiles(NamedTuple):
    """Paths of PEM files, and the key's password. Without `ca` the system's CAs are trusted."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    password: str | None = None


_HINTS = {
    "alert bad certificate": "does it want a certificate of ours?",
    "alert certificate required": "does it want a certificate of ours?",
    "EOF occurred in violation of protocol": "does it want a certificate of ours?",
    "local issuer certificate": "does the CA file have the authority that signed it?",
    "self-signed certificate": "does the CA file have the authority that signed it?",
    "wrong version number": "does it speak TLS on this port?",
}


def hinted(text: str) -> str:
    """Return an error's text, plus a hint for obscure TLS errors."""
    hint = next((hint for words, hint in _HINTS.items() if words in text), None)
    return text if hint is None else f"{text} ({hint})"


def client_context(files: TlsFiles, names: TlsFiles, prefix: str) -> ssl.SSLContext:
    """Return a context that trusts the CA file and presents the certificate.

    Raises `ConfigError` for an unusable file, named by its setting (`prefix` and `names`). No
    message contains a password.
    """
    try:
        _check(files, names)
        context = _trusting(files.ca, names.ca)
        if files.certificate is not None:
            _prove(context, files, names)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from None
    return context


def _check(files: TlsFiles, names: TlsFiles) -> None:
    if files.certificate is None and (files.key or files.password):
        unused = names.key if files.key else names.password
        raise ConfigError(f"{unused}: has no effect without {names.certificate}")
    for name, path in zip(names[:3], files[:3], strict=True):
        try:
            if path is not None:
                Path(path).open("rb").close()
        except OSError as error:
            raise ConfigError(f"{name}: {path}: {error.strerror}") from None


def _trusting(ca: str | None, name: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise ConfigError(f"{name}: expected certificates in PEM; got {ca}") from None


def _prove(context: ssl.SSLContext, files: TlsFiles, names: TlsFiles) -> None:
    try:
        # Without a password OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(str(files.certificate), files.key, files.password or "")
    except ssl.SSLError as error:
        why = "are not a pair" if error.reason == "KEY_VALUES_MISMATCH" else "cannot be read"
        expected = f"a certificate in PEM and its key ({names.key}; locked: {names.password})"
        raise ConfigError(f"{names.certificate}: expected {expected}; these {why}") from None
