"""Which sources a file may have: none for two intakes, one of a route's target for its rounds."""

import pytest

from duebridge.config.load import load_config_text
from duebridge.errors import ConfigError

CONFIG = """\
version: 1
brokers:
  events: {type: kafka, bootstrap_servers: ["localhost:9092"]}
  mail: {type: rabbitmq, url: "amqp://localhost"}
  box: {type: memory}
routes:
  r: {target: {broker: events, topic: t}, dead_letter: {broker: events, topic: dead}}
intakes:
"""


def config(*sources: str) -> str:
    named = (f"  i{n}: {{source: {{{each}}}, route: r}}\n" for n, each in enumerate(sources))
    return CONFIG + "".join(named)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("broker: events, topic: a", "broker: events, topic: a, group: duebridge", "topic a"),
        ("broker: mail, queue: a", "broker: mail, queue: a, prefetch: 5", "broker mail, queue a"),
        ("broker: box, queue: a", "broker: box, queue: a", "broker box, queue a"),
    ],
)
def test_load_two_intakes_of_one_source_names_both_and_the_place(
    first: str, second: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config_text(config(first, second), "f.yaml")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("f.yaml:10:8 intakes.i1.source: expected a source of its own; intake i0")
    assert said in line


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("broker: events, topic: a", "broker: events, topic: b"),
        ("broker: events, topic: a", "broker: events, topic: a, group: other"),
        ("broker: mail, queue: a", "broker: box, queue: a"),
    ],
)
def test_load_intakes_of_different_sources_is_no_mistake(first: str, second: str) -> None:
    assert len(load_config_text(config(first, second), "f.yaml").intakes) == 2


DECLARING = """\
version: 1
brokers:
  mail: {type: rabbitmq, url: "amqp://localhost"}
  box: {type: memory}
routes:
  r:
    target: {broker: mail, exchange: "", routing_key: t}
    dead_letter: {broker: box, topic: dead}
  b: {target: {broker: box, topic: t}, dead_letter: {broker: box, topic: dead}}
intakes:
"""


def declaring(*intakes: str) -> str:
    return DECLARING + "".join(f"  i{n}: {{{each}}}\n" for n, each in enumerate(intakes))


@pytest.mark.parametrize("more", ["", ", type: topic"])
@pytest.mark.parametrize("to", ["", ", to: route"])
def test_load_two_intakes_that_declare_one_exchange_names_both_and_the_place(
    more: str, to: str
) -> None:
    """RabbitMQ binds both queues to it: each message would be scheduled twice, under two ids."""
    first = "source: {broker: mail, queue: a}, declare: {exchange: x}, route: r"
    second = f"source: {{broker: mail, queue: b}}, declare: {{exchange: x{more}}}, route: r{to}"
    with pytest.raises(ConfigError) as caught:
        load_config_text(declaring(first, second), "f.yaml")
    (line,) = str(caught.value).splitlines()
    said = "expected an exchange of its own; intake i0 declares this one, too"
    assert line.startswith("f.yaml:12:42 intakes.i1.declare: ")
    assert f"{said}: each would get a copy of each message" in line


def test_load_intakes_that_declare_different_exchanges_is_no_mistake() -> None:
    intakes = [
        "source: {broker: mail, queue: a}, declare: {exchange: x}, route: r",
        "source: {broker: mail, queue: b}, declare: {exchange: y}, route: r",
        "source: {broker: mail, queue: c}, route: r",
        "source: {broker: box, queue: d}, declare: {exchange: x}, route: b",
    ]
    assert len(load_config_text(declaring(*intakes), "f.yaml").intakes) == 4


def test_load_source_that_is_the_routes_target_is_no_mistake_where_rounds_count() -> None:
    intake = "  i: {source: {broker: events, topic: t}, route: r, to: origin}\n"
    assert load_config_text(CONFIG + intake, "f.yaml").intakes["i"].to == "origin"
