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


def test_load_source_that_is_the_routes_target_is_no_mistake_where_rounds_count() -> None:
    intake = "  i: {source: {broker: events, topic: t}, route: r, to: origin}\n"
    assert load_config_text(CONFIG + intake, "f.yaml").intakes["i"].to == "origin"
