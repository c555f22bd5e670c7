"""RabbitMQ over TLS, in a virtual host: who may publish, and what is said to whom may not."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from duebridge.cli.exits import BROKER, exit_code
from duebridge.config.secrets import resolve_at
from duebridge.ports.publisher import BrokerUnavailable, Publisher, Verdict
from duebridge_connectors.rabbitmq import open_publisher
from tests.contract.broker_under_test import delivery, ids, verdicts
from tests.contract.rabbitmq_broker import RabbitBroker
from tests.security.certificates import KEY_PASSWORD, Certificates
from tests.security.documented import documented
from tests.security.secure_rabbitmq import PASSWORD, SecureRabbit

BY_PASSWORD, BY_CERTIFICATE = "RabbitMQ, user and password", "RabbitMQ, client certificate"
WRONG = "canary-wrong"
DEADLINE_S = 10.0

Open = Callable[..., Publisher]


@pytest.fixture
def open_at(
    rabbit: SecureRabbit, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Open what the documentation shows, at another address or with other TLS options."""
    opened: list[Publisher] = []

    def open_at(
        title: str, where: str = "", login: str = PASSWORD, swap: str = "", **tls: str
    ) -> Publisher:
        monkeypatch.setenv("RABBIT_PASSWORD", quote(login, safe=""))
        port = rabbit.mtls_port if title == BY_CERTIFICATE else rabbit.tls_port
        address = where or f"localhost:{port}"
        settings: Any = resolve_at("", documented(title, certificates, address)["billing"])
        settings["options"]["ssl_options"].update(tls)
        before, _, after = swap.partition(">")
        settings["url"] = settings["url"].replace(before, after) if swap else settings["url"]
        opened.append(open_publisher(settings, DEADLINE_S))
        return opened[-1]

    yield open_at
    for publisher in opened:
        publisher.close()


def confirms(publisher: Publisher, queues: RabbitBroker) -> bool:
    """Publish to a new queue, and read it back by another way."""
    target = queues.missing_target()
    queues.create(target)
    batch = [delivery(target) for _ in range(3)]
    assert verdicts(publisher.publish(batch)) == [Verdict.CONFIRMED] * 3
    return ids(queues.read_all(target)) == ids(batch)


def refusal(publisher: Publisher) -> str:
    with pytest.raises(BrokerUnavailable) as refused:
        publisher.publish([])
    assert exit_code(refused.value) == BROKER
    return str(refused.value)


def test_publish_with_user_and_password_confirms(open_at: Open, queues: RabbitBroker) -> None:
    assert confirms(open_at(BY_PASSWORD), queues)


def test_publish_with_a_client_certificate_confirms(open_at: Open, queues: RabbitBroker) -> None:
    assert confirms(open_at(BY_CERTIFICATE), queues)


def test_publish_with_a_locked_key_and_its_password_confirms(
    open_at: Open, queues: RabbitBroker, certificates: Certificates
) -> None:
    locked = {"keyfile": certificates.locked_key, "password": KEY_PASSWORD}
    assert confirms(open_at(BY_CERTIFICATE, **locked), queues)


def test_publish_to_an_address_with_the_name_given_confirms(
    open_at: Open, queues: RabbitBroker, rabbit: SecureRabbit
) -> None:
    address = f"127.0.0.1:{rabbit.tls_port}"
    assert confirms(open_at(BY_PASSWORD, address, server_hostname="localhost"), queues)


def test_connect_with_a_wrong_password_is_unavailable(open_at: Open) -> None:
    assert "ACCESS_REFUSED" in refusal(open_at(BY_PASSWORD, login=WRONG))


def test_connect_to_an_unknown_authoritys_server_is_unavailable(
    open_at: Open, certificates: Certificates
) -> None:
    said = refusal(open_at(BY_PASSWORD, ca_certs=certificates.other_ca))
    assert "certificate verify failed" in said
    assert "the CA file" in said


def test_connect_under_another_name_is_unavailable(open_at: Open, rabbit: SecureRabbit) -> None:
    said = refusal(open_at(BY_PASSWORD, f"127.0.0.1:{rabbit.tls_port}"))
    assert "not valid for '127.0.0.1'" in said


def test_connect_without_a_certificate_where_one_is_wanted_is_unavailable(
    open_at: Open, rabbit: SecureRabbit
) -> None:
    said = refusal(open_at(BY_PASSWORD, f"localhost:{rabbit.mtls_port}"))
    assert "a certificate of ours" in said


def test_connect_with_a_certificate_of_no_user_is_unavailable(
    open_at: Open, certificates: Certificates
) -> None:
    server = {"certfile": certificates.server, "keyfile": certificates.server_key}
    assert "ACCESS_REFUSED" in refusal(open_at(BY_CERTIFICATE, **server))


@pytest.mark.parametrize(
    ("vhost", "message"),
    [("nowhere", "vhost nowhere not found"), ("%2F", "access to vhost '/' refused")],
)
def test_connect_to_another_virtual_host_is_unavailable(
    vhost: str, message: str, open_at: Open
) -> None:
    assert message in refusal(open_at(BY_PASSWORD, swap=f"orders%2Feu%20%26%20co>{vhost}"))


def test_connect_without_tls_where_it_is_spoken_is_unavailable(
    rabbit: SecureRabbit, open_at: Open
) -> None:
    publisher = open_publisher({"url": f"amqp://localhost:{rabbit.tls_port}/"}, DEADLINE_S)
    assert "StreamLostError" in refusal(publisher)
    publisher.close()
    assert "wrong version number" in refusal(open_at(BY_PASSWORD, f"localhost:{rabbit.port}"))
