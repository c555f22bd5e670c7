"""Intakes in the configuration: defaults, what they add to their route, schema and output."""

import msgspec
import pytest
from jsonschema import Draft7Validator

from duebridge.config.models import Config
from duebridge.config.render import rendered_config
from duebridge.config.schema import config_schema
from duebridge.envelope import Target
from duebridge.worker.reload import fixed_at_start
from duebridge_connectors.memory import Memory
from tests.unit.config_text import loaded, refusal

FILE = """\
version: 1
brokers:
  box: {type: memory}
routes:
  r:
    target: {broker: box, exchange: e, routing_key: k}
    dead_letter: {broker: box, topic: dead}
intakes:
"""
ONE = "  in: {source: {broker: box, queue: q}, route: r}\n"
DECLARED = "  in: {source: {broker: box, queue: q}, route: r, declare: {exchange: d}}\n"
DUE = Target("box", exchange="delayed.due", routing_key="*")


def with_intake(rest: str = "") -> Config:
    return loaded(f"{FILE}  in: {{source: {{broker: box, queue: q}}, route: r{rest}}}\n")


def test_load_intake_without_more_has_the_defaults() -> None:
    intake = with_intake().intakes["in"]

    assert (intake.name, intake.route, intake.to) == ("in", "r", "route")
    assert (intake.declare, intake.dead_letter, intake.on_conflict) == (None, None, "refuse")
    assert intake.remember == 600_000
    assert intake.source.model_dump() == {"broker": "box", "queue": "q"}


def test_load_file_without_intakes_has_none() -> None:
    assert loaded(FILE.replace("intakes:\n", "")).intakes == {}


def test_load_declared_intake_is_due_there_and_its_route_permits_it() -> None:
    config = with_intake(", declare: {exchange: delayed}")

    assert config.intakes["in"].to == "declared"
    assert config.routes["r"].allow_targets == (DUE,)


@pytest.mark.parametrize("to", ["route", "origin"])
def test_load_declared_intake_with_another_end_permits_nothing_more(to: str) -> None:
    config = with_intake(f", declare: {{exchange: delayed}}, to: {to}")

    assert config.intakes["in"].to == to
    assert config.routes["r"].allow_targets == ()


def test_render_intake_loads_again_as_the_same_configuration() -> None:
    text = FILE + DECLARED
    shown = msgspec.yaml.encode(rendered_config(text, "f.yaml")).decode()

    assert loaded(shown) == loaded(text)


def test_schema_takes_an_intake_and_refuses_an_unknown_key() -> None:
    validator = Draft7Validator(config_schema())
    settings = rendered_config(FILE + DECLARED, "f.yaml")

    assert not list(validator.iter_errors(settings))
    settings["intakes"]["in"]["source"]["quue"] = "q"
    assert list(validator.iter_errors(settings))


@pytest.mark.parametrize(
    ("lacking", "intake", "expected"),
    [
        ("source", ONE, "25 intakes.in.source.broker: expected a broker of a type that has intakes;"
         " got 'box'"),
        ("declaration", DECLARED, "51 intakes.in.declare: unknown key, brokers of this type declare"
         " nothing for an intake"),
    ],
)  # fmt: skip
def test_load_intake_of_a_type_without_its_model_says_so(
    monkeypatch: pytest.MonkeyPatch, lacking: str, intake: str, expected: str
) -> None:
    monkeypatch.setattr(Memory, lacking, None)
    assert refusal(FILE + intake) == [f"f.yaml:9:{expected}"]


@pytest.mark.parametrize(
    ("intakes", "changed"),
    [
        ("  {}\n", "in"),
        (ONE.replace("queue: q", "queue: other"), "in"),
        (ONE + ONE.replace("in:", "more:").replace("queue: q", "queue: p"), "more"),
    ],
)
def test_reload_with_other_intakes_needs_a_restart(intakes: str, changed: str) -> None:
    assert fixed_at_start(loaded(FILE + ONE), loaded(FILE + intakes), ["box"]) == [
        f"intakes.{changed}: is read at the start; restart the worker for another"
    ]
