"""The metrics by name: what is exposed is documented, with units, and no label holds an id."""

import re

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import CollectorRegistry

from bridge import metrics
from bridge.config import WorkerSettings
from bridge.lane import Lane
from connectors.memory import MemoryPublisher
from tests.conftest import ROOT

LABELS = {"route", "broker", "shard", "state", "cause", "reason", "version", "le"}
ROW = re.compile(r"^\| `(duebridge_[a-z_]+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def documented() -> dict[str, tuple[str, set[str]]]:
    text = (ROOT / "docs" / "metrics.md").read_text()
    return {
        name: (kind, set(labels.replace(",", " ").split()))
        for name, kind, labels in ROW.findall(text)
    }


def exposed() -> dict[str, str]:
    registry = CollectorRegistry()
    lane = Lane("b", MemoryPublisher(), WorkerSettings())
    for each in vars(metrics).values():
        if isinstance(each, MetricWrapperBase | metrics.Lateness):
            registry.register(each)
    registry.register(metrics.StationCollector(list, [lane]))
    metrics.lateness.observe("r", [0.1])
    found = {}
    for family in registry.collect():
        found[family.name + ("_total" if family.type == "counter" else "")] = family.type
    return found


def test_metric_that_is_exposed_is_documented_with_its_kind() -> None:
    assert {name: kind for name, (kind, _) in documented().items()} == exposed()


def test_label_of_a_metric_is_never_an_id() -> None:
    for name, (_, labels) in documented().items():
        assert labels <= LABELS, name


def test_metric_of_a_time_is_in_seconds() -> None:
    histograms = [name for name, kind in exposed().items() if kind == "histogram"]
    assert all(name.endswith("_seconds") or name == "duebridge_claim_size" for name in histograms)
