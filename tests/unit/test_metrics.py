"""The metrics by name: what is exposed is documented, with units, and no label holds an id."""

import re

import pytest
from prometheus_client import REGISTRY
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import CollectorRegistry

from duebridge.envelope import Headers, HeaderValue
from duebridge.ports.publisher import Outcome, Verdict
from duebridge.store.wire.leases import LeasedEnvelope
from duebridge.store.wire.record import EnvelopeContent, Flight, Record
from duebridge.telemetry import metrics
from tests.support.checkout import ROOT
from tests.support.metrics_exposed import exposed

LABELS = {
    "route", "broker", "shard", "state", "cause", "reason", "version", "window", "script", "fault",
    "target", "role", "intake", "method", "path", "status",
}  # fmt: skip
ROW = re.compile(r"^\| `(duebridge_[a-z_]+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def documented() -> dict[str, tuple[str, set[str]]]:
    text = (ROOT / "docs" / "metrics.md").read_text()
    return {
        name: (kind, set(labels.replace(",", " ").split()))
        for name, kind, labels in ROW.findall(text)
    }


def test_metric_that_is_exposed_is_documented_with_its_kind() -> None:
    assert {name: kind for name, (kind, _) in documented().items()} == exposed()


def test_label_of_a_metric_is_never_an_id() -> None:
    for name, (_, labels) in documented().items():
        assert labels <= LABELS, name


def observed(headers: Headers, unsure: bool = False) -> CollectorRegistry:
    """A registry with the lateness of one confirmed envelope."""
    record = Record(1000, 0, 0, 0, 1, b"", b"")
    leased = LeasedEnvelope(
        "a", record, Flight(1, unsure=unsure), EnvelopeContent(b"", headers=headers)
    )
    registry = CollectorRegistry()
    registry.register(metrics.lateness)
    metrics.observe_confirmed("traced", [leased], [Outcome(Verdict.CONFIRMED)], 1300)
    return registry


def test_lateness_of_a_sampled_trace_has_it_as_exemplar_in_openmetrics() -> None:
    registry = observed((("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01"),))
    text = openmetrics.generate_latest(registry).decode()
    assert re.search(rf'le="0.5",route="traced"}} \S+ # {{trace_id="{"ab" * 16}"}} 0.3 ', text)


@pytest.mark.parametrize(
    "value",
    [
        f"00-{'ef' * 16}-{'cd' * 8}-00",  # nobody keeps it
        f"00-{'00' * 16}-{'cd' * 8}-01", f"00-{'EF' * 16}-{'cd' * 8}-01", "00-ef-cd-01", b"\xff",
        None,
    ],
)  # fmt: skip
def test_lateness_without_a_sampled_trace_has_no_exemplar(value: HeaderValue) -> None:
    text = openmetrics.generate_latest(observed((("traceparent", value),))).decode()
    assert "ef" * 16 not in text.lower()
    assert "0" * 32 not in text


def test_confirmed_after_an_unsure_attempt_is_suspected_of_being_a_duplicate() -> None:
    name, labels = "duebridge_duplicate_suspects_total", {"route": "traced"}
    before = REGISTRY.get_sample_value(name, labels) or 0
    observed((), unsure=True)
    observed((), unsure=False)
    assert REGISTRY.get_sample_value(name, labels) == before + 1


def test_begin_lets_every_counter_of_a_route_stand_at_0_before_its_first_event() -> None:
    metrics.begin("fresh")
    found = [
        sample
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.labels.get("route") == "fresh" and sample.name.endswith("_total")
    ]
    with_route = {name for name, (kind, labels) in documented().items() if "route" in labels}
    of_store = {"duebridge_scheduled_total"}
    counters = {name for name in with_route - of_store if name.endswith("_total")}
    assert {sample.name for sample in found} == counters
    assert {sample.value for sample in found} == {0}
