"""Kafka over TLS: who may publish and take in, and what is said to whom may not."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka.admin import (
    ACLOperation,
    KafkaAdminClient,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from duebridge.cli.exits import BROKER, exit_code
from duebridge.config.broker_access import open_publishers
from duebridge.config.models import Config
from duebridge.config.secrets import resolve_at
from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.ports.checks import Destination, Finding, FindingSubject, Severity
from duebridge.ports.publisher import BrokerUnavailable, Publisher, Verdict
from duebridge.ports.source import Source, SourcePlan
from duebridge_connectors.kafka import open_publisher
from duebridge_connectors.kafka.broker import KAFKA
from tests.support import tokens
from tests.support.certificates import KEY_PASSWORD, Certificates, make_certificates
from tests.support.command import embedded_command
from tests.support.contract.broker_under_test import confirms, delivery, verdicts
from tests.support.contract.source_under_test import WITHIN_S, Memory, bodies, settled
from tests.support.documented import documented
from tests.support.kafka.acls import acls_of, all_but, put_in_force
from tests.support.kafka.kafka_broker import KafkaBroker
from tests.support.kafka.kafka_sources import KafkaSources, end_connections
from tests.support.kafka.own_kafka import PASSWORD, USER, SecureKafka
from tests.support.running_clock import ends_within
from tests.support.servers import wait_until

pytestmark = pytest.mark.usefixtures("no_secret_is_logged")

CLIENTS = ["kafka-python", "librdkafka"]
BY_PASSWORD, BY_CERTIFICATE = "Kafka, user and password", "Kafka, client certificate"
BY_TOKEN = "Kafka, OAUTHBEARER"  # noqa: S105 - a title
PROVIDER = "sasl.oauthbearer.token.provider"
WRONG, NEXT = "canary-wrong", "canary-next"
REFUSED_WITHIN_S = 4.0  # a handshake of Java takes a third of a second on a quiet machine

Open = Callable[..., Publisher]


@pytest.fixture(scope="module")
def topics(secure_kafka: SecureKafka) -> Iterator[KafkaBroker]:
    """Make topics and read them, over the listener that asks nobody anything."""
    with closing(KafkaBroker(f"127.0.0.1:{secure_kafka.open}")) as broker:
        yield broker


@pytest.fixture(params=CLIENTS)
def open_at(
    request: pytest.FixtureRequest,
    secure_kafka: SecureKafka,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Open]:
    """Open what the documentation shows, with changed options; None takes one away."""
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
    opened: list[Publisher] = []

    def open_at(
        title: str, deadline_s: float = 15.0, host: str = "localhost", **changed: str | None
    ) -> Publisher:
        port = secure_kafka.mtls if title == BY_CERTIFICATE else secure_kafka.sasl
        settings: Any = resolve_at("", documented(title, certificates, f"{host}:{port}")["orders"])
        dotted = {name.replace("_", "."): value for name, value in changed.items()}
        options = {**settings["options"], **dotted}
        settings["options"] = {name: value for name, value in options.items() if value}
        opened.append(open_publisher({**settings, "client": request.param}, deadline_s))
        return opened[-1]

    yield open_at
    for publisher in opened:
        publisher.close()


def refusal(publisher: Publisher, topics: KafkaBroker) -> str:
    (outcome,) = publisher.publish([delivery(topics.missing_target())])
    assert outcome.verdict is Verdict.UNAVAILABLE
    return outcome.error_message


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_publish_with_user_and_password_confirms(
    mechanism: str, open_at: Open, topics: KafkaBroker
) -> None:
    assert confirms(open_at(BY_PASSWORD, sasl_mechanism=mechanism), topics)


def test_publish_with_a_client_certificate_confirms(open_at: Open, topics: KafkaBroker) -> None:
    assert confirms(open_at(BY_CERTIFICATE), topics)


def test_publish_with_a_token_confirms_and_uses_it_again(
    open_at: Open, topics: KafkaBroker
) -> None:
    tokens.asked.clear()
    assert confirms(open_at(BY_TOKEN), topics)
    assert len(tokens.asked) in {1, 2}  # where another client publishes, kafka-python still asks


def test_publish_without_the_check_of_the_name_confirms_under_another_name(
    open_at: Open, topics: KafkaBroker
) -> None:
    anything = {"ssl_endpoint_identification_algorithm": "none"}
    assert confirms(open_at(BY_PASSWORD, host="127.0.0.1", **anything), topics)


@pytest.mark.parametrize(
    ("title", "host", "changed", "message"),
    [
        (BY_PASSWORD, "localhost", {"sasl_password": WRONG}, "uthentication failed"),
        (
            BY_PASSWORD,
            "localhost",
            {"sasl_mechanism": "PLAIN", "sasl_password": WRONG},
            "uthentication failed",
        ),
        (BY_PASSWORD, "localhost", {"ssl_ca_location": "{other_ca}"}, "certificate verify failed"),
        (BY_PASSWORD, "localhost", {"ssl_ca_location": None}, "certificate verify failed"),
        (BY_PASSWORD, "127.0.0.1", {}, "certificate verify failed"),
        (
            BY_CERTIFICATE,
            "localhost",
            {"ssl_certificate_location": None, "ssl_key_location": None, "ssl_key_password": None},
            "alert bad certificate|alert certificate required",  # Java's TLS has both words for it
        ),
        (BY_TOKEN, "localhost", {"provider": "unsigned_for_nobody"}, "invalid_token"),
        (BY_TOKEN, "localhost", {"provider": "broken"}, "tokens:broken: RuntimeError"),
        (BY_TOKEN, "localhost", {"provider": "expired"}, "expected (token, expires_at_s)"),
    ],
)
def test_publish_as_somebody_else_is_unavailable_and_says_why(
    title: str,
    host: str,
    changed: dict[str, str | None],
    message: str,
    open_at: Open,
    topics: KafkaBroker,
    certificates: Certificates,
) -> None:
    files = certificates._asdict()
    given = {name: value and value.format(**files) for name, value in changed.items()}
    if "provider" in given:
        given[PROVIDER] = f"tests.support.tokens:{given.pop('provider')}"
    publisher = open_at(title, REFUSED_WITHIN_S, host, **given)
    with ends_within(REFUSED_WITHIN_S + 1):
        refused = refusal(publisher, topics)
    assert any(each in refused for each in message.split("|")), refused


def test_command_with_a_wrong_password_exits_4_and_shows_no_secret(
    secure_kafka: SecureKafka, certificates: Certificates, tmp_path: Path
) -> None:
    brokers = documented(BY_PASSWORD, certificates, f"localhost:{secure_kafka.sasl}")
    routes = {"reminders": {"target": {"broker": "orders", "topic": "reminders"}}}
    with embedded_command(tmp_path) as duebridge:
        store = {"url": duebridge.url}
        config = {"version": 1, "store": store, "brokers": brokers, "routes": routes}
        duebridge.file.write_text(yaml.safe_dump(config))
        done = duebridge("config", "check", "--connect", KAFKA_PASSWORD=WRONG)
    assert done.code == BROKER
    assert "uthentication failed" in done.out + done.err
    assert "canary" not in done.out + done.err
    assert "Traceback" not in done.err


def test_password_replaced_on_disk_is_used_at_the_next_connect(
    secure_kafka: SecureKafka, topics: KafkaBroker, certificates: Certificates, tmp_path: Path
) -> None:
    secret, port = tmp_path / "password", secure_kafka.sasl
    secret.write_text(PASSWORD)
    give_password(secure_kafka.open, "rotated", PASSWORD)
    options = {"sasl.username": "rotated", "sasl.password": f"${{file:{secret}}}"}
    with ExitStack() as stack:
        publishers = both_clients(certificates, port, options, stack)
        for publisher in publishers:
            wait_until(partial(refused_for, publisher, ""), "the first password", 60)
            assert confirms(publisher, topics)
        give_password(secure_kafka.open, "rotated", NEXT)
        for publisher in publishers:
            is_refused = partial(refused_anew, publisher, "uthentication failed", port)
            wait_until(is_refused, "the old password's end", 60)
        secret.write_text(NEXT)
        for publisher in publishers:
            wait_until(partial(refused_for, publisher, ""), "the new password", 60)
            assert confirms(publisher, topics)


def test_certificate_replaced_on_disk_is_used_at_the_next_connect(
    secure_kafka: SecureKafka, topics: KafkaBroker, certificates: Certificates, tmp_path: Path
) -> None:
    """By kafka-python; librdkafka reads its files when a worker starts."""
    (tmp_path / "strange").mkdir()
    strange, port = make_certificates(tmp_path / "strange"), secure_kafka.mtls
    live = {"client": tmp_path / "live.pem", "client_key": tmp_path / "live-key.pem"}
    install(certificates, live)
    settings: Any = documented(BY_CERTIFICATE, certificates, f"localhost:{port}")["orders"]
    names = ("ssl.certificate.location", "ssl.key.location")
    settings["options"] |= dict(zip(names, map(str, live.values()), strict=True))
    del settings["options"]["ssl.key.password"]
    with closing(open_publisher({**settings, "client": "kafka-python"}, 15.0)) as publisher:
        assert confirms(publisher, topics)
        install(strange, live)
        is_refused = partial(refused_anew, publisher, "SSL", port)
        wait_until(is_refused, "the strange certificate's refusal", 60)
        install(certificates, live)
        wait_until(partial(refused_for, publisher, ""), "the new certificate", 60)
        assert confirms(publisher, topics)


def install(files: Certificates, live: dict[str, Path]) -> None:
    for name, path in live.items():
        shutil.copy(getattr(files, name), path)


def both_clients(
    certificates: Certificates, port: int, options: dict[str, str], stack: ExitStack
) -> list[Publisher]:
    """Open what is documented as a worker does, with other options, by either client."""
    settings: Any = documented(BY_PASSWORD, certificates, f"localhost:{port}")["orders"]
    settings["options"].update(options)
    brokers = {name: {**settings, "client": name} for name in CLIENTS}
    routes = {name: {"target": {"broker": name, "topic": "rotated"}} for name in CLIENTS}
    config = Config.model_validate({"version": 1, "brokers": brokers, "routes": routes})
    return list(open_publishers(config, stack).values())


def test_printed_acls_deliver_and_check_the_topics_and_nothing_else(
    secure_kafka: SecureKafka, topics: KafkaBroker, certificates: Certificates, open_at: Open
) -> None:
    own, other, prefixed = (topics.missing_target() for _ in range(3))
    for target in (own, other, prefixed):
        topics.create(target)
    address = f"localhost:{secure_kafka.sasl}"
    settings: Any = documented(BY_PASSWORD, certificates, address)["orders"]
    allowed = [own, Target("orders", topic=f"{prefixed.topic}*")]
    commands = KAFKA.permissions(settings, allowed)
    elsewhere = KAFKA.permissions({**settings, "options": {"sasl.username": "another"}}, [other])
    put_in_force(secure_kafka.open, [acl for line in commands + elsewhere for acl in acls_of(line)])
    publisher = open_at(BY_PASSWORD)

    def told() -> list[Verdict]:
        return verdicts(publisher.publish([delivery(each) for each in (own, prefixed, other)]))

    confirmed, refused = Verdict.CONFIRMED, Verdict.TARGET_FAILED
    wait_until(lambda: told() == [confirmed, confirmed, refused], "the ACLs to hold", 20)
    places = [Destination("r", f"routes.{each.topic}", each, 10) for each in (own, other)]
    found = KAFKA.examine("brokers.orders", resolve_at("", settings), places, 15)
    failed = [each.place for each in found if each.severity is Severity.FAILURE]
    assert failed == [f"routes.{other.topic}"]
    assert any("max.message.bytes" in each.found for each in found)


@pytest.mark.parametrize(
    ("denied", "severity", "found"),
    [
        (ACLOperation.WRITE, Severity.FAILURE, "this user may not write topic"),
        (ACLOperation.ALL, Severity.FAILURE, "TopicAuthorizationFailedError"),
        (ACLOperation.DESCRIBE_CONFIGS, Severity.OK, "limits unknown"),
        (None, Severity.OK, "max.message.bytes: 1048588"),
    ],
)
def test_examine_topic_says_what_we_may_do_and_see(
    denied: ACLOperation | None,
    severity: Severity,
    found: str,
    secure_kafka: SecureKafka,
    topics: KafkaBroker,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    settings: Any = documented(BY_PASSWORD, certificates, f"localhost:{secure_kafka.sasl}")
    target = topics.missing_target()
    topics.create(target)
    if denied:
        put_in_force(secure_kafka.open, all_but(denied, USER, str(target.topic)))
    place = Destination("r", "routes.r.target", target, 1000)

    def finding() -> Finding:
        return KAFKA.examine("brokers.orders", resolve_at("", settings["orders"]), [place], 15)[-1]

    wait_until(lambda: found in finding().found, "the ACLs to hold", 20)
    told = finding()
    assert (told.severity, told.about) == (severity, FindingSubject.ROUTE)


def opened_source(settings: Any, topic: str, group: str) -> Source:
    plan = SourcePlan("i", "orders", {"topic": topic, "group": group})
    return KAFKA.open_source(settings, plan, Memory())


def source_refusal(source: Source) -> str:
    with closing(source), pytest.raises(ConfigError) as refused:
        source.receive(WITHIN_S)
    return str(refused.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_printed_acls_take_in_from_the_topic_and_group_and_from_no_other(
    client: str,
    secure_kafka: SecureKafka,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    found = documented(BY_PASSWORD, certificates, f"localhost:{secure_kafka.sasl}")["orders"]
    settings: Any = {**resolve_at("", found), "client": client}
    with closing(KafkaSources(f"127.0.0.1:{secure_kafka.open}", client)) as broker:
        own, other = broker.create(), broker.create()
        broker.send(own, [b"for us"])
        plan = SourcePlan("i", "orders", {"topic": own, "group": f"group-of-{own}"})
        commands = KAFKA.source_permissions(settings, [plan])
        strangers = {**settings, "options": {"sasl.username": "another"}}
        foreign = SourcePlan("i", "orders", {"topic": other, "group": "others"})
        commands += KAFKA.source_permissions(strangers, [foreign])
        put_in_force(secure_kafka.open, [acl for line in commands for acl in acls_of(line)])

        def is_closed() -> bool:
            findings = KAFKA.examine_source("p", settings, foreign, 15)
            return {each.severity for each in findings} == {Severity.FAILURE}

        wait_until(is_closed, "the ACLs to hold", 20)
        (fine,) = KAFKA.examine_source("p", settings, plan, 15)
        assert fine.severity is Severity.OK
        with closing(opened_source(settings, own, f"group-of-{own}")) as source:
            assert bodies(settled(source, 1)) == [b"for us"]
        assert "TOPIC_AUTHORIZATION_FAILED" in normal(
            source_refusal(opened_source(settings, other, "any"))
        )
        assert "GROUP_AUTHORIZATION_FAILED" in normal(
            source_refusal(opened_source(settings, own, "others"))
        )


def normal(text: str) -> str:
    """Return librdkafka's names for kafka-python's."""
    for kind in ("Topic", "Group"):
        text = text.replace(
            f"{kind}AuthorizationFailedError", f"{kind.upper()}_AUTHORIZATION_FAILED"
        )
    return text


def give_password(port: int, user: str, password: str) -> None:
    """Let a user, new or known, log in with this password only."""
    with closing(KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")) as admin:
        given = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, password)
        admin.alter_user_scram_credentials([given])


def refused_anew(publisher: Publisher, why: str, port: int) -> bool:
    """Tell whether a ping is refused with these words at its next connect, which comes now."""
    end_connections(port)
    return refused_for(publisher, why)


def refused_for(publisher: Publisher, why: str) -> bool:
    """Tell whether a ping is refused with these words; without words, whether it is answered."""
    try:
        publisher.ping()
    except BrokerUnavailable as error:
        return bool(why) and why in str(error)
    return not why


def test_ping_with_a_wrong_password_is_what_a_command_ends_with_4_for(open_at: Open) -> None:
    publisher = open_at(BY_PASSWORD, REFUSED_WITHIN_S, sasl_password=WRONG)
    with pytest.raises(BrokerUnavailable, match="uthentication failed") as refused:
        publisher.ping()
    assert exit_code(refused.value) == BROKER
