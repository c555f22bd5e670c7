"""Which settings a changed file concerns, and which of them a worker takes at its start only."""

import pytest

from duebridge.worker.reload import Changes, changes_between, fixed_at_start, other_shards
from tests.unit.config_text import BROKERS, WHOLE, loaded

REST = "is read at the start; restart the worker for another"
LANES = ("orders",)


def route(name: str, topic: str) -> str:
    return f"  {name}: {{target: {{broker: orders, topic: {topic}}}}}\n"


def test_changes_name_routes_added_removed_and_changed() -> None:
    old = loaded(WHOLE + route("s", "s") + route("same", "x"))
    new = loaded(WHOLE.replace("topic: t", "topic: u") + route("new", "s") + route("same", "x"))
    assert changes_between(old, new) == Changes(["new"], ["s"], ["r"])


def test_changes_of_defaults_are_those_of_the_routes_that_inherit() -> None:
    text = WHOLE + "  s: {target: {broker: orders, topic: s}, max_delay: 1d}\n"
    changes = changes_between(loaded(text), loaded(text + "defaults: {max_delay: 2d}\n"))
    assert changes == Changes([], [], ["r"])


def test_comments_change_nothing() -> None:
    assert not any(changes_between(loaded(WHOLE), loaded(f"# text\n{WHOLE}")))


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("store: {url: 'redis://u:Canary@h'}", "store.url"),
        ("store: {namespace: other}", "store.namespace"),
        ("store: {allow_unfit: [version]}", "store.allow_unfit"),
        ("worker: {batch: 7}", "worker.batch"),
        ("worker: {in_flight: 7}", "worker.in_flight"),
        ("worker: {in_flight_bytes: 1MiB}", "worker.in_flight_bytes"),
        ("worker: {publish_deadline: 7s}", "worker.publish_deadline"),
        ("worker: {drain: 7s}", "worker.drain"),
    ],
)
def test_setting_of_the_start_is_refused_by_its_place(block: str, place: str) -> None:
    new = loaded(f"{WHOLE}{block}\n")
    assert fixed_at_start(loaded(WHOLE), new, LANES) == [f"{place}: {REST}"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("localhost:9092", "Canary:9092"),
        ("  billing:", "  billing2:"),
        ("type: kafka,", "type: kafka, options: {sasl.password: Canary},"),
    ],
)
def test_other_brokers_are_refused_without_what_they_hold(old: str, new: str) -> None:
    refused = fixed_at_start(loaded(WHOLE), loaded(WHOLE.replace(old, new)), LANES)
    assert refused
    assert all(line.startswith("brokers.") and line.endswith(REST) for line in refused)
    assert "Canary" not in "".join(refused)


def test_all_reasons_come_at_once() -> None:
    text = WHOLE.replace("localhost:9092", "h:1") + "worker: {batch: 7, drain: 7s}\n"
    places = [line.split(":")[0] for line in fixed_at_start(loaded(WHOLE), loaded(text), LANES)]
    assert places == ["brokers.orders", "worker.batch", "worker.drain"]


def test_route_to_a_broker_without_a_lane_is_refused() -> None:
    new = loaded(WHOLE + "    dead_letter: {broker: billing, routing_key: q}\n")
    assert fixed_at_start(loaded(WHOLE), new, LANES) == [
        "routes.r.dead_letter.broker: broker billing, which no route used at the start, has no"
        " lane; restart the worker to open one"
    ]
    assert fixed_at_start(loaded(WHOLE), new, ("orders", "billing")) == []


def test_other_number_of_shards_is_refused_with_the_procedure() -> None:
    new = loaded(f"{BROKERS}routes:\n  r: {{target: {{broker: orders, topic: t}}, shards: 2}}\n")
    assert other_shards(new, {"r": 2, "s": 3}) == []
    assert other_shards(new, {"r": 1}) == [
        "routes.r.shards: expected 1, as the store has it; got 2. To change it, make a new route"
        " with that number and drain this one"
    ]
