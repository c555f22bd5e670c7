"""Many releases on one cluster: each has a store's namespace of its own, and keeps it.

What a release has installed is given as text, or as objects of an API server that is none.
"""

from copy import deepcopy
from pathlib import Path

import pytest

from tests.deploy.api_server import api_server
from tests.deploy.chart import (
    FOLDER,
    Chart,
    ChartRefused,
    Object,
    configuration,
    loaded,
    objects,
    one,
    pod_of,
    with_define,
)
from tests.deploy.chart import values_of as values

WITHOUT = "store: {url: redis://r}"
WITH = "store: {namespace: shop}"


def rendered_over(chart: Chart, tmp_path: Path, installed: str, *options: str) -> str:
    """Return the namespace that an upgrade of a release with this file renders."""
    folder = with_define(tmp_path / "chart", "duebridge.installedText", installed)
    words = ("template", "demo", str(folder), "-n", "shop", "--is-upgrade")
    made = chart.run(*words, "-f", str(values("kafka")), *options)
    return loaded(list(objects(made))).store.namespace


def test_namespace_is_of_the_release_and_of_its_kubernetes_namespace(chart: Chart) -> None:
    assert loaded(chart.mode("kafka")).store.namespace == "shop.demo"
    words = ("template", "other", str(FOLDER), "-n", "shop", "-f", str(values("kafka")))
    assert loaded(list(objects(chart.run(*words)))).store.namespace == "shop.other"


def test_namespace_that_is_given_is_taken(chart: Chart) -> None:
    rendered = chart.given({"config.store": {"url": "redis://r/0", "namespace": "mine"}})
    assert loaded(rendered).store.namespace == "mine"


@pytest.mark.parametrize(
    ("installed", "kept"),
    [(WITHOUT, "duebridge"), (WITH, "shop"), ("version: 1", "duebridge"), ("", "shop.demo")],
)
def test_upgrade_keeps_the_namespace_that_holds_the_routes(
    chart: Chart, tmp_path: Path, installed: str, kept: str
) -> None:
    assert rendered_over(chart, tmp_path, installed) == kept


def others_like(worker: Object) -> list[Object]:
    """Return workers of another release, of another chart, and of an alias of this one."""
    others = {
        "a-b": {"app.kubernetes.io/instance": "b"},
        "demo-airflow": {"helm.sh/chart": "airflow-1.0.0"},
        "demo-duebridge-2": {"helm.sh/chart": "duebridge-2-0.2.0"},
    }
    return [other_like(worker, name, labels) for name, labels in others.items()]


def other_like(worker: Object, name: str, labels: dict[str, str]) -> Object:
    other = deepcopy(worker)
    other["metadata"]["name"] = name
    other["metadata"]["labels"] |= labels
    other["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = "none"
    return other


@pytest.mark.parametrize(
    ("names", "forbidden"),
    [
        ("replicas=2", ""),
        ("replicas=2", "deployments"),  # to list them: an installer may have get alone
        ("fullnameOverride=bridge", ""),
        ("nameOverride=bridge", ""),
    ],
)
def test_upgrade_keeps_the_namespace_of_the_workers_under_any_name(
    chart: Chart, tmp_path: Path, names: str, forbidden: str
) -> None:
    worker = one(chart.mode("kafka"), "Deployment")
    config = deepcopy(one(chart.mode("kafka"), "ConfigMap", "demo-duebridge"))
    config["data"]["duebridge.yaml"] = WITH
    found = [*others_like(worker), worker, config]
    with api_server(found, tmp_path, forbidden=forbidden) as options:
        given = ("--is-upgrade", "-f", str(values("kafka")), f"--set={names}")
        rendered = chart.template(*options, *given)
    name = one(rendered, "Deployment")["metadata"]["name"]
    assert loaded(rendered).store.namespace == "shop"
    running = pod_of(rendered, "Job", f"{name}-check")["volumes"][-1]
    assert running["configMap"]["name"] == "demo-duebridge"


@pytest.mark.parametrize(("installed", "old"), [(WITHOUT, "duebridge"), (WITH, "shop")])
def test_upgrade_to_another_namespace_is_refused_unless_forced(
    chart: Chart, tmp_path: Path, installed: str, old: str
) -> None:
    other = "--set=config.store.namespace=other"
    with pytest.raises(ChartRefused) as refused:
        rendered_over(chart, tmp_path / "a", installed, other)
    assert f"config.store.namespace: expected {old}" in str(refused.value)
    forced = (other, "--set=preflight.enabled=false")
    assert rendered_over(chart, tmp_path / "b", installed, *forced) == "other"


def test_check_reads_the_namespace_of_the_workers(chart: Chart) -> None:
    rendered = chart.mode("kafka")
    made = one(rendered, "ConfigMap", "demo-duebridge-check")
    assert made["data"]["duebridge.yaml"] == configuration(rendered)


def test_trial_store_lets_labelled_producers_of_the_namespace_in(chart: Chart) -> None:
    [rule] = one(chart.mode("trial"), "NetworkPolicy", "demo-duebridge-valkey")["spec"]["ingress"]
    own, producers = rule["from"]
    assert own["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "demo"
    assert producers == {"podSelector": {"matchLabels": {"duebridge/store": "demo-duebridge"}}}
    assert rule["ports"] == [{"port": "valkey"}]
