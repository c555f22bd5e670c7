"""The worker as the chart runs it: what it reads, how it is probed, stopped, spread and drained."""

import pytest

from duebridge.config.models import WorkerSettings
from duebridge.worker.reporting.probes import FROZEN_AFTER_S
from tests.deploy.chart import (
    FOLDER,
    MODES,
    Chart,
    ChartRefused,
    Object,
    container_of,
    loaded,
    one,
    pod_of,
    pod_templates,
    values_of,
)
from tests.support.checkout import ROOT

WITH_NAMES = [mode for mode in MODES if mode != "bare"]
WITH_CONFIG = [mode for mode in MODES if mode != "existing-config"]
RESTART_WITHIN_S = 30
START_S = 3  # of a container that was killed, and of Python in it


def checksum(rendered: list[Object]) -> str:
    metadata = one(rendered, "Deployment")["spec"]["template"]["metadata"]
    return str(metadata["annotations"]["checksum/config"])


def grace_s(rendered: list[Object]) -> int:
    return int(pod_of(rendered)["terminationGracePeriodSeconds"])


def test_worker_reads_the_file_that_is_mounted(chart: Chart) -> None:
    rendered = chart.mode("kafka")
    container = container_of(rendered)
    assert container["args"][:3] == ["--config", "/etc/duebridge/duebridge.yaml", "run"]
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "config"]
    # a directory: a single file of a volume would never change under a running worker
    assert (mount["mountPath"], mount.get("subPath")) == ("/etc/duebridge", None)
    [volume] = [each for each in pod_of(rendered)["volumes"] if each["name"] == "config"]
    name = volume["configMap"]["name"]
    assert "duebridge.yaml" in one(rendered, "ConfigMap", name)["data"]


def test_existing_config_is_mounted_and_none_made(chart: Chart) -> None:
    rendered = chart.mode("existing-config")
    assert not [each for each in rendered if each["kind"] == "ConfigMap"]
    pods = [pod_of(rendered), pod_of(rendered, "Job", "demo-duebridge-check")]
    assert [pod["volumes"][0]["configMap"]["name"] for pod in pods] == ["our-duebridge"] * 2


def test_existing_config_needs_no_config_in_values(chart: Chart) -> None:
    options = ("config=null", "serve.enabled=true", "intakeWorkers.a.replicas=1")
    words = ("install", "demo", str(FOLDER), "--dry-run=client", "--set", ",".join(options))
    said = chart.run(*words, "-f", str(values_of("existing-config")))
    assert "demo-duebridge-a" in said
    assert "duebridge send ROUTE hello" in said


def test_checksum_changes_with_the_configuration_alone(chart: Chart) -> None:
    before = chart.mode("kafka")
    other = chart.given({"config.worker": {"batch": 250}})
    same = chart.given({"replicas": 3})
    assert checksum(before) == checksum(same) != checksum(other)


def test_frozen_worker_is_restarted_in_time(chart: Chart) -> None:
    probe = container_of(chart.mode("kafka"))["livenessProbe"]
    probes_s = probe["periodSeconds"] * probe["failureThreshold"]
    # a process that answers nothing takes each probe's whole timeout; a loop that stands still
    # lets its health page say so
    seen_s = max(probes_s + probe["timeoutSeconds"], FROZEN_AFTER_S + probes_s)
    killed_s = seen_s + probe["terminationGracePeriodSeconds"]
    assert killed_s + START_S <= RESTART_WITHIN_S


def test_liveness_asks_less_than_readiness(chart: Chart) -> None:
    container = container_of(chart.mode("kafka"))
    paths = {probe: container[probe]["httpGet"]["path"] for probe in container if "Probe" in probe}
    expected = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert paths == expected
    ports = {container[probe]["httpGet"]["port"] for probe in paths}
    assert ports == {container["ports"][0]["name"]} == {"health"}


def test_every_program_tells_where_it_crashed(chart: Chart) -> None:
    templates = [(mode, *each) for mode in MODES for each in pod_templates(chart.mode(mode))]
    for mode, name, template in templates:
        container = template["spec"]["containers"][0]
        if container["name"] != "valkey":
            env = {each["name"]: each.get("value") for each in container["env"]}
            assert env["PYTHONFAULTHANDLER"] == "1", (mode, name)


def test_every_image_tells_where_it_crashed() -> None:
    files = sorted((ROOT / "deploy" / "images").glob("*.Dockerfile"))
    assert [file.stem for file in files if "PYTHONFAULTHANDLER=1" in file.read_text("utf-8")] == [
        "spark",
        "worker",
    ]


@pytest.mark.parametrize("key", ["env", "extraEnv", "extraEnvVars"])
def test_variable_of_the_chart_that_is_given_stands_once(chart: Chart, key: str) -> None:
    name = "PYTHONFAULTHANDLER"
    value = {name: "0"} if key == "env" else [{"name": name, "value": "0"}]
    env = container_of(chart.given({key: value}))["env"]
    assert [each["value"] for each in env if each["name"] == name] == ["0"]


@pytest.mark.parametrize("mode", WITH_CONFIG)
def test_configuration_of_mode_loads_and_the_grace_period_is_enough_for_it(
    chart: Chart, mode: str
) -> None:
    rendered = chart.mode(mode)
    config = loaded(rendered)
    assert config.routes
    least_s = (config.worker.drain + config.worker.publish_deadline) / 1000
    assert least_s < grace_s(rendered) < least_s + 15


SETTINGS = WorkerSettings()
DEFAULTS_S = (SETTINGS.drain + SETTINGS.publish_deadline) // 1000


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        ({}, DEFAULTS_S + 10),
        ({"drain": "1500ms", "publish_deadline": "2.5s"}, 2 + 3 + 10),
        ({"drain": "2m", "publish_deadline": "15s"}, 120 + 15 + 10),
        ({"drain": "1h"}, 3600 + 15 + 10),
        ({"drain": "1m30s"}, 90 + 15 + 10),
        ({"drain": "1w1d1h1m1.5s500ms"}, 694_862 + 15 + 10),
        ({"publish_deadline": "1m30s"}, 20 + 90 + 10),
    ],
)
def test_grace_period_follows_the_worker_settings(
    chart: Chart, worker: Object, expected: int
) -> None:
    rendered = chart.given({"config.worker": worker, "config.defaults": {"lease": "1d"}})
    assert grace_s(rendered) == expected


def test_grace_period_that_is_too_short_is_refused(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match=r"terminationGracePeriodSeconds: expected at least 35"):
        chart.given({"terminationGracePeriodSeconds": 34})
    assert grace_s(chart.given({"terminationGracePeriodSeconds": 35})) == 35


def test_grace_period_below_a_duration_of_several_parts_is_refused(chart: Chart) -> None:
    given = {"config.worker": {"drain": "1m30s"}, "terminationGracePeriodSeconds": 104}
    with pytest.raises(ChartRefused, match=r"expected at least 105 \(worker.drain 1m30s"):
        chart.given(given)


def test_grace_period_of_settings_by_reference_has_to_be_given(chart: Chart) -> None:
    worker = {"drain": "${DRAIN:-20s}"}
    with pytest.raises(ChartRefused, match="terminationGracePeriodSeconds: expected"):
        chart.given({"config.worker": worker})
    rendered = chart.given({"config.worker": worker, "terminationGracePeriodSeconds": 60})
    assert grace_s(rendered) == 60


def test_budget_always_allows_an_eviction(chart: Chart) -> None:
    for mode in WITH_NAMES:
        budget = one(chart.mode(mode), "PodDisruptionBudget")["spec"]
        assert "minAvailable" not in budget, mode
        assert budget["maxUnavailable"] not in (0, "0%"), mode
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow", mode


def test_spread_never_keeps_a_pod_waiting(chart: Chart) -> None:
    spread = pod_of(chart.mode("kafka"))["topologySpreadConstraints"]
    assert {each["whenUnsatisfiable"] for each in spread} == {"ScheduleAnyway"}
    keys = {each["topologyKey"] for each in spread}
    assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


def test_selectors_find_the_workers_and_nothing_else(chart: Chart) -> None:
    for mode in WITH_NAMES:
        rendered = chart.mode(mode)
        workers = one(rendered, "Deployment")["spec"]["template"]["metadata"]["labels"]
        job = one(rendered, "Job", "demo-duebridge-check")["spec"]["template"]["metadata"]["labels"]
        selectors = [
            one(rendered, "Deployment")["spec"]["selector"]["matchLabels"],
            one(rendered, "Service", "demo-duebridge")["spec"]["selector"],
            one(rendered, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        ]
        for selector in selectors:
            assert selector.items() <= workers.items(), mode
            assert not selector.items() <= job.items(), mode


def test_upgrade_of_the_chart_alone_restarts_nobody(chart: Chart) -> None:
    labels = one(chart.mode("kafka"), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert "helm.sh/chart" not in labels


def test_long_name_still_makes_names_that_are_allowed(chart: Chart) -> None:
    rendered = chart.given({"fullnameOverride": "r" * 99}, mode="trial")
    longest = {"Job": 63}  # a label of its pods
    for each in rendered:
        assert len(each["metadata"]["name"]) <= longest.get(each["kind"], 52)
