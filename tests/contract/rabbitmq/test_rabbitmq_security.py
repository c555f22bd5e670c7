"""RabbitMQ over TLS: who may publish and take in, and what is said to whom may not."""

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from duebridge.cli.exits import BROKER, exit_code
from duebridge.config.broker_access import open_publishers
from duebridge.config.models import Config
from duebridge.config.secrets import resolve_at
from duebridge.errors import ConfigError
from duebridge.ports.publisher import BrokerUnavailable, Delivery, Publisher, Verdict
from duebridge.ports.source import SourcePlan
from duebridge_connectors.rabbitmq import open_publisher
from duebridge_connectors.rabbitmq.broker import RABBITMQ
from duebridge_connectors.rabbitmq.source.rabbit_source import open_source
from tests.contract.rabbitmq.declaring import DELAYED, Names, examined, failures
from tests.support import certificates as own
from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.support.checkout import missing
from tests.support.contract.broker_under_test import confirms
from tests.support.contract.source_under_test import (
    Memory,
    bodies,
    is_quiet,
    numbered,
    received,
    settled,
)
from tests.support.documented import documented
from tests.support.rabbitmq.own_rabbitmq import PrivateRabbit
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker
from tests.support.servers import free_port, listens, wait_until

USER = "shop"
PASSWORD = "canary/p@ss:9d27%"  # noqa: S105 - must not come out again
VHOST = "orders/eu & co"
TLS_WITHIN_S = 10.0

CONFIG = """\
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {server_certificate}
ssl_options.keyfile = {server_key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
load_definitions = {definitions}
"""
# A second listener, which wants a certificate: the configuration has one set of options for all.
DEMAND = """\
{{ok, Options}} = application:get_env(rabbit, ssl_options),
Strict = lists:keystore(fail_if_no_peer_cert, 1, Options, {{fail_if_no_peer_cert, true}}),
rabbit_networking:start_ssl_listener({{"127.0.0.1", {port}}}, Strict, 1).
"""


class SecureRabbit(PrivateRabbit):
    """`tls_port` takes any client, `mtls_port` only one with a certificate."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        super().__init__(folder)
        self.tls_port, self.mtls_port = free_port(), free_port()
        definitions = folder / "definitions.json"
        definitions.write_text(json.dumps(_definitions()))
        config = folder / ".services" / "rabbitmq" / "conf.d" / "secure.conf"
        config.parent.mkdir(parents=True)
        files = certificates._asdict()
        config.write_text(CONFIG.format(port=self.tls_port, definitions=definitions, **files))
        _enable(folder / "deploy" / "local" / "rabbitmq_server.py", "rabbitmq_auth_mechanism_ssl")

    @property
    def open_url(self) -> str:
        """Where the test itself makes queues and reads them."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{quote(VHOST, safe='')}"

    def start(self) -> None:
        super().start()
        try:  # it listens without TLS first
            wait_until(lambda: listens(self.tls_port), "TLS of RabbitMQ", TLS_WITHIN_S)
        except AssertionError:
            missing("a RabbitMQ with TLS", "install rabbitmq-server: a container's settings differ")
        self.control("eval", DEMAND.format(port=self.mtls_port))


def _definitions() -> dict[str, object]:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    may = [("guest", "/"), ("guest", VHOST), (USER, VHOST), (own.USER, VHOST)]
    return {
        "users": [
            {"name": "guest", "password": "guest", "tags": "administrator"},
            {"name": USER, "password": PASSWORD, "tags": ""},
            {"name": own.USER, "password_hash": "", "tags": ""},
        ],
        "vhosts": [{"name": "/"}, {"name": VHOST}],
        "permissions": [{"user": user, "vhost": vhost, **everything} for user, vhost in may],
    }


def _enable(program: Path, plugin: str) -> None:
    """Let the copied program enable a plugin; it writes the list anew at each start."""
    before = program.read_text()
    after = before.replace('"[].\\n"', f'"[{plugin}].\\n"')
    assert after != before
    program.write_text(after)


BY_PASSWORD, BY_CERTIFICATE = "RabbitMQ, user and password", "RabbitMQ, client certificate"
WRONG = "canary-wrong"
DEADLINE_S = 10.0
NEXT = "canary-next"
VHOST_IN_URL = quote(VHOST, safe="")

Open = Callable[..., Publisher]


pytestmark = pytest.mark.usefixtures("no_secret_is_logged")


@pytest.fixture(scope="module")
def rabbit(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureRabbit]:
    rabbit = SecureRabbit(tmp_path_factory.mktemp("rabbit"), certificates)
    try:
        rabbit.start()
        yield rabbit
    finally:
        rabbit.stop()


@pytest.fixture(scope="module")
def queues(rabbit: SecureRabbit) -> Iterator[RabbitBroker]:
    """Make queues and read them, over the listener without TLS."""
    with closing(RabbitBroker(rabbit.open_url)) as broker:
        yield broker


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


def refusal(publisher: Publisher) -> str:
    with pytest.raises(BrokerUnavailable) as refused:
        publisher.ping()
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


def test_source_over_tls_receives_small_and_large_messages(
    queues: RabbitBroker, rabbit: SecureRabbit, certificates: Certificates
) -> None:
    target = queues.missing_target()
    queues.create(target)
    sent = [*numbered(500), *numbered(20, 300_000), *numbered(500)]
    for body in sent:
        queues.channel.basic_publish(target.exchange, target.routing_key, body)
    settings = {
        "url": f"amqps://guest:guest@localhost:{rabbit.tls_port}/{VHOST_IN_URL}",
        "options": {"ssl_options": {"ca_certs": str(certificates.ca)}},
    }
    plan = SourcePlan("intake", "billing", {"queue": target.exchange})
    with closing(open_source(settings, plan, Memory())) as source:
        batch = received(source)
        source.keep_alive()
        source.settle(batch)
        found = [*batch, *settled(source, len(sent) - len(batch))]
        assert bodies(found) == sent
        assert is_quiet(source)


def test_publish_to_an_address_with_the_name_given_confirms(
    open_at: Open, queues: RabbitBroker, rabbit: SecureRabbit
) -> None:
    address = f"127.0.0.1:{rabbit.tls_port}"
    assert confirms(open_at(BY_PASSWORD, address, server_hostname="localhost"), queues)


def test_password_and_certificates_replaced_on_disk_are_used_at_the_next_connect(
    rabbit: SecureRabbit, queues: RabbitBroker, certificates: Certificates, tmp_path: Path
) -> None:
    secret, ca = tmp_path / "password", tmp_path / "ca.pem"
    secret.write_text(quote(PASSWORD, safe=""))
    shutil.copy(certificates.ca, ca)
    brokers = {
        "b": {
            "type": "rabbitmq",
            "url": f"amqps://{USER}:${{file:{secret}}}@localhost:{rabbit.tls_port}/{VHOST_IN_URL}",
            "options": {"ssl_options": {"ca_certs": str(ca)}},
        }
    }
    routes = {"r": {"target": {"broker": "b", "exchange": "", "routing_key": "q"}}}
    config = Config.model_validate({"version": 1, "brokers": brokers, "routes": routes})
    with ExitStack() as stack:
        publisher = open_publishers(config, stack)["b"]
        assert confirms(publisher, queues)
        rabbit.control("change_password", USER, NEXT)
        try:
            cut_off(rabbit)
            wait_until(lambda: "ACCESS_REFUSED" in refused(publisher), "the change", 20)
            shutil.copy(certificates.other_ca, ca)
            wait_until(lambda: "verify failed" in refused(publisher), "the other authority", 20)
            shutil.copy(certificates.ca, ca)
            wait_until(lambda: "ACCESS_REFUSED" in refused(publisher), "the old password", 20)
            secret.unlink()
            assert "ACCESS_REFUSED" in refusal(publisher)
            secret.write_text(NEXT)
            wait_until(lambda: not refused(publisher), "the new password", 20)
            assert confirms(publisher, queues)
        finally:
            rabbit.control("change_password", USER, PASSWORD)


def refused(publisher: Publisher) -> str:
    try:
        publisher.ping()
    except BrokerUnavailable as error:
        return str(error)
    return ""


def cut_off(rabbit: SecureRabbit) -> None:
    rabbit.control("close_all_user_connections", USER, "rotated")


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


def test_printed_permissions_declare_and_take_in_and_nothing_else(rabbit: SecureRabbit) -> None:
    names = Names()
    plan = names.plan()
    rabbit.control("add_user", "least", "secret")
    settings = {"url": rabbit.url.replace("guest:guest", "least:secret")}
    lines = RABBITMQ.source_permissions(settings, [plan])
    take_in, declare = (shlex.split(line.removeprefix("# ")) for line in (lines[1], lines[3]))
    rabbit.control(*take_in[1:])
    with pytest.raises(ConfigError, match="may not declare"):
        RABBITMQ.declare_source(settings, plan)
    rabbit.control(*declare[1:])
    RABBITMQ.declare_source(settings, plan)
    rabbit.control(*take_in[1:])
    send(rabbit.url, names)
    with closing(RABBITMQ.open_source(settings, plan, Memory())) as source:
        batch = received(source)
        assert bodies(batch) == [b"body"]
        while source.lag() is None:
            source.keep_alive()
        source.settle(batch)
    assert failures(examined(settings["url"], plan)) == []
    letter, due = plan.dead_letter, batch[0].onward
    assert letter is not None
    assert due is not None
    with closing(RABBITMQ.open_publisher(settings, DEADLINE_S)) as publisher:
        sent = [Delivery("a", letter, b"letter"), Delivery("b", due, b"due")]
        verdicts = [outcome.verdict for outcome in publisher.publish(sent)]
    assert verdicts == [Verdict.CONFIRMED, Verdict.TARGET_FAILED]  # the latter: no consumer's queue
    rabbit.control("set_permissions", "least", "^$", ".*", "^$")
    with (
        closing(RABBITMQ.open_source(settings, plan, Memory())) as source,
        pytest.raises(ConfigError, match="may not be read"),
    ):
        source.receive(DEADLINE_S)
    assert failures(examined(settings["url"], plan))[0].endswith("may not be read")


def send(url: str, names: Names) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(names.exchange, "key", b"body", DELAYED)
