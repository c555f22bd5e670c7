"""Broker types: what loads them, what they refuse offline, and the targets that they define."""

import pickle
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from duebridge.config.broker_access import open_publisher, using
from duebridge.config.offline import broker_faults, checked_config
from duebridge.config.yaml_tree import read_tree
from duebridge.envelope import Envelope, Target, target_as_dict, target_of
from duebridge.errors import ConfigError, EnvelopeError
from duebridge.ports import discovery
from duebridge.ports.discovery import ClientMissing, broker_type, naming
from duebridge.scheduling.limits import RouteLimits, with_whole_target
from tests.unit.config_text import BROKERS, WHOLE, loaded


def offline(text: str) -> list[str]:
    return [str(fault) for fault in broker_faults(read_tree(text, "f.yaml"))]


# Loading

PROGRAM = """\
import sys
from duebridge.config.load import load_config
load_config(sys.argv[1])
found = {"kafka", "confluent_kafka", "pika", "duebridge_connectors.rabbitmq"} & sys.modules.keys()
sys.exit(str(found) if found else 0)
"""


def test_load_configuration_imports_no_client_and_only_the_types_it_names(tmp_path: Path) -> None:
    path = tmp_path / "duebridge.yaml"
    path.write_text(WHOLE.replace('  billing: {type: rabbitmq, url: "amqp://localhost"}\n', ""))
    run = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_broker_type_that_is_not_installed_names_the_installed() -> None:
    with pytest.raises(ConfigError, match="expected one of kafka, memory, rabbitmq; got 'nats'"):
        broker_type("nats")


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("broken:FILE", "SyntaxError: "),
        ("ours:NOPE", "AttributeError: "),
        ("ours:Kind", "the class Kind$"),
        ("ours", "module$"),
        ("missing:FILE", ""),
    ],
)
def test_broker_type_that_does_not_load_says_why_and_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, got: str
) -> None:
    for name, text in {
        "broken": "1 +\n",
        "ours": "class Kind: ...\n",
        "missing": "import nope\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    others = discovery._installed()
    installed = {**others, "odd": EntryPoint("odd", value, discovery.GROUP)}
    monkeypatch.setattr(discovery, "_installed", lambda: installed)
    said = rf"^entry point odd = {value} of .*: expected an instance of BrokerType; got {got}"
    with pytest.raises(ConfigError, match=said if got else "needs the Python package nope"):
        broker_type.__wrapped__("odd")
    with capture_logs() as logs:
        found = discovery.loadable_types.__wrapped__()
    assert [each["type"] for each in logs] == ["odd"]
    assert len(found) == len(others)


def test_naming_puts_the_broker_before_an_error_of_its_options() -> None:
    with (
        pytest.raises(ConfigError, match=r"^brokers\.orders\.options\.acks: owned$"),
        naming("orders", "kafka"),
    ):
        raise ConfigError("options.acks: owned")


def test_broker_whose_variable_is_missing_says_so_at_its_place_once() -> None:
    text = "brokers: {mail: {type: rabbitmq, url: '${NOPE_URL}'}}\nversion: 1\n"
    target = "{broker: mail, exchange: '', routing_key: q}"
    config = loaded(f"{text}routes: {{r: {{target: {target}}}}}\n")
    with pytest.raises(ConfigError) as caught:
        open_publisher(config, "mail")
    assert str(caught.value) == "brokers.mail.url: variable NOPE_URL: not set"


@pytest.mark.parametrize(
    ("client", "extra"), [("", "kafka"), ("kafka-python", "kafka"), ("librdkafka", "librdkafka")]
)
def test_naming_a_missing_client_says_what_to_install(client: str, extra: str) -> None:
    settings = f"client: {client}, " if client else ""
    config = loaded(WHOLE.replace("type: kafka,", f"type: kafka, {settings}"))
    with pytest.raises(ClientMissing) as caught, using(config, "orders"):
        raise ModuleNotFoundError("no", name="kafka")
    assert caught.value.remedy == f"type: pip install 'duebridge[{extra}]'"


# Offline


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('["localhost:9092"]', '["localhost:9092"], options: {acks: 0}',
         "f.yaml:3:80 brokers.orders.options.acks: the bridge sets it"),
        ('["localhost:9092"]', '["localhost:9092"], options: {lingerms: 5}',
         "f.yaml:3:74 brokers.orders.options.lingerms: unknown option, did you mean linger.ms?"),
        ("localhost:9092", "localhost",
         "f.yaml:3:45 brokers.orders.bootstrap_servers.0: expected host:port; got 'localhost'"),
        ("amqp://localhost", "amqp://localhost:port/",
         "f.yaml:4:34 brokers.billing.url: expected amqp://user:password@host:port/vhost"),
    ],
)  # fmt: skip
def test_check_offline_names_what_a_worker_would_refuse(old: str, new: str, expected: str) -> None:
    [line] = offline(WHOLE.replace(old, new))
    assert line.startswith(expected)


MISTAKES = """\
version: 1
brokers:
  orders:
    type: kafka
    client: %s
    bootstrap_servers: [localhost, "localhost:9092", "9092"]
    options: {acks: 0, lingerms: 5, linger.ms: soon}
  billing:
    type: rabbitmq
    url: amqp://localhost:port/
    options: {host: rabbit, hartbeat: 5, frame_max: 1}
routes:
  r: {target: {broker: orders, topc: t}}
"""


@pytest.mark.parametrize("client", ["kafka-python", "librdkafka"])
def test_check_offline_names_all_mistakes_at_once_beside_one_in_a_route(client: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked_config(read_tree(MISTAKES % client, "f.yaml"))
    said = [line.partition(" ")[2] for line in str(refused.value).splitlines()]
    assert [line.partition(": ")[0] for line in said] == [
        "brokers.orders.bootstrap_servers.0",
        "brokers.orders.bootstrap_servers.2",
        "brokers.orders.options.acks",
        *(["brokers.orders.options.lingerms"] if client == "kafka-python" else []),
        "brokers.orders.options.linger.ms",
        "brokers.billing.url",
        "brokers.billing.options.host",
        "brokers.billing.options.hartbeat",
        "brokers.billing.options.frame_max",
        "routes.r.target.topic",
        "routes.r.target.topc",
    ]


NO_MAPPING = """\
version: 1
brokers: {{b: {}}}
routes: {{r: {{target: {{broker: b, topic: t}}}}}}
"""


@pytest.mark.parametrize("given", ["kafka", "[]", "5"])
def test_check_offline_of_a_broker_that_is_no_mapping_says_so(given: str) -> None:
    with pytest.raises(ConfigError, match=r"^f\.yaml:2:\d+ brokers\.b: expected a mapping; got"):
        checked_config(read_tree(NO_MAPPING.format(given), "f.yaml"))


def test_check_offline_names_each_option_that_librdkafka_refuses() -> None:
    options = "options: {lingerms: 5, socket.max.fails: -1, zzz: 1}"
    lines = offline(WHOLE.replace("type: kafka,", f"type: kafka, client: librdkafka, {options},"))
    assert [line.partition(" ")[2].partition(": ")[0] for line in lines] == [
        f"brokers.orders.options.{name}" for name in ("lingerms", "socket.max.fails", "zzz")
    ]


def test_check_offline_without_librdkafka_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for name in [name for name in sys.modules if "kafka.librdkafka" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("duebridge_connectors.kafka.librdkafka", raising=False)
    [line] = offline(WHOLE.replace("type: kafka,", "type: kafka, client: librdkafka,"))
    assert "brokers.orders.client: librdkafka needs the Python package" in line
    assert "pip install 'duebridge[kafka,librdkafka]'" in line


def test_check_offline_finds_nothing_in_what_can_be_opened_or_is_unset_here() -> None:
    assert offline(WHOLE) == []
    assert offline(WHOLE.replace("amqp://localhost", "${DB_NO_SUCH}")) == []


# Targets


def test_target_is_frozen_hashable_and_can_be_pickled() -> None:
    target = Target("billing", routing_key="due", exchange="dunning")
    assert target == Target("billing", exchange="dunning", routing_key="due", topic=None)
    assert {target: 1}[pickle.loads(pickle.dumps(target))] == 1  # noqa: S301 - our own
    assert str(target) == "billing:dunning/due"
    assert target.topic is None
    with pytest.raises(AttributeError):
        target.exchange = "x"


def test_target_in_a_record_is_the_map_that_it_was() -> None:
    target = Target("billing", routing_key="due", exchange="")
    data = msgspec.msgpack.encode({"target": target}, enc_hook=target_as_dict)
    plain = {"broker": "billing", "exchange": "", "routing_key": "due"}
    assert data == msgspec.msgpack.encode({"target": plain})
    read = msgspec.msgpack.decode(data, type=dict[str, Target | None], dec_hook=target_of)
    assert read == {"target": target}


@pytest.mark.parametrize("given", [{}, {"broker": 1}, {"broker": "b", "topic": 1}, "b"])
def test_target_that_is_no_map_of_text_cannot_be_decoded(given: object) -> None:
    data = msgspec.msgpack.encode(given)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=Target, dec_hook=target_of)


ROUTE = """\
routes:
  r:
    target: {broker: billing, exchange: dunning, routing_key: due}
    allow_targets: [{broker: billing, exchange: dunning, routing_key: "late.*"}]
"""


def own_targets() -> RouteLimits:
    config = loaded(BROKERS + ROUTE)
    return RouteLimits.of(config, config.routes["r"])


def test_target_with_the_routing_key_alone_takes_the_rest_from_the_route() -> None:
    limits = own_targets()
    given = Envelope.new(b"x", delay="1s", target=Target("billing", routing_key="late.2"))
    whole = with_whole_target(given, limits.route)
    assert whole.target == Target("billing", exchange="dunning", routing_key="late.2")
    limits.check(whole)


def test_target_with_an_unknown_field_names_the_near_one() -> None:
    given = Envelope.new(b"x", delay="1s", target=Target("billing", routing_kye="late.2"))
    with pytest.raises(EnvelopeError, match="routing_kye: unknown field, did you mean routing_key"):
        own_targets().check(given)


def test_target_of_another_broker_than_the_route_has_is_refused() -> None:
    given = Envelope.new(b"x", delay="1s", target=Target("orders", topic="late.2"))
    with pytest.raises(EnvelopeError, match=r"^target\.topic: unknown field"):
        own_targets().check(given)
    other = Target("orders", exchange="dunning", routing_key="late.2")
    with pytest.raises(EnvelopeError, match="one that allow_targets of route 'r' permits"):
        own_targets().check(Envelope.new(b"x", delay="1s", target=other))
