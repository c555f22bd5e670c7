"""TLS files that cannot be used are told apart before anything is connected."""

import ssl

import pytest

from duebridge.errors import ConfigError
from duebridge.ports.tls import TlsFiles, client_context, hinted
from tests.security.certificates import KEY_PASSWORD, Certificates, make_certificates

NAMES = TlsFiles("ca", "cert", "key", "password")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("made"))


def test_context_always_verifies_certificate_and_name(made: Certificates) -> None:
    for files in (TlsFiles(), TlsFiles(made.ca), TlsFiles(made.ca, made.client, made.client_key)):
        context = client_context(files, NAMES, "")
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname


def test_context_of_an_authority_trusts_that_one_only(made: Certificates) -> None:
    assert len(client_context(TlsFiles(made.ca), NAMES, "").get_ca_certs()) == 1


def test_context_of_a_locked_key_takes_its_password(made: Certificates) -> None:
    client_context(TlsFiles(made.ca, made.client, made.locked_key, KEY_PASSWORD), NAMES, "")


def test_context_of_a_certificate_and_key_in_one_file_needs_no_other(made: Certificates) -> None:
    client_context(TlsFiles(made.ca, made.server), NAMES, "")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (TlsFiles("/nowhere"), "at.ca: /nowhere: No such file or directory"),
        (TlsFiles("/"), "at.ca: /: Is a directory"),
        (TlsFiles("{client_key}"), "at.ca: expected certificates in PEM; got "),
        (TlsFiles(key="{client_key}"), "at.key: has no effect without cert"),
        (TlsFiles(None, None, None, "canary"), "at.password: has no effect without cert"),
        (TlsFiles(None, "{client}", "{server_key}"), "these are not a pair"),
        (TlsFiles(None, "{client}", "{locked_key}"), "these cannot be read"),
        (TlsFiles(None, "{client}", "{locked_key}", "canary"), "these cannot be read"),
        (TlsFiles(None, "{client_key}", "{client}"), "these cannot be read"),
        (TlsFiles(None, "{client}"), "these cannot be read"),
    ],
)
def test_context_of_files_of_no_use_is_refused_without_a_secret(
    files: TlsFiles, message: str, made: Certificates
) -> None:
    given = TlsFiles(*(each and each.format(**made._asdict()) for each in files))
    with pytest.raises(ConfigError) as refused:
        client_context(given, NAMES, "at.")
    assert message in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("tlsv13 alert certificate required", "(does it want a certificate of ours?)"),
        ("unable to get local issuer certificate", "(does the CA file have"),
        ("wrong version number", "(does it speak TLS on this port?)"),
    ],
)
def test_hint_follows_an_error_that_says_too_little(text: str, hint: str) -> None:
    assert hinted(text).startswith(f"{text} {hint}")


def test_hint_is_not_given_for_what_speaks_for_itself() -> None:
    assert hinted("Connection refused") == "Connection refused"
