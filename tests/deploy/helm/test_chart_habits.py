"""Words of Bitnami's charts: some mean the same here, of others Helm says what to write instead.

`ci/bitnami-values.yaml` has them, `ci/bitnami-skeleton-values.yaml` what their charts begin with;
test_chart_adopters has the settings of pods.
"""

import pytest
import yaml

from deploy.helm import habits
from tests.deploy.chart import (
    FOLDER,
    Chart,
    ChartRefused,
    Object,
    container_of,
    one,
    pod_of,
)

WORKER, HTTP, INTAKE = "demo-duebridge", "demo-duebridge-http", "demo-duebridge-retries"
ELSEWHERE = yaml.safe_load((FOLDER / "files" / "elsewhere.yaml").read_text("utf-8"))
HABITS = yaml.safe_load((FOLDER / "files" / "habits.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def rendered(chart: Chart) -> list[Object]:
    return chart.mode("bitnami")


@pytest.mark.parametrize(
    ("kind", "name", "user"),
    [
        ("Deployment", WORKER, 1001),
        ("Deployment", HTTP, 1002),
        ("Job", "demo-duebridge-check", 1001),
    ],
)
def test_security_context_goes_over_the_charts_own(
    rendered: list[Object], kind: str, name: str, user: int
) -> None:
    assert pod_of(rendered, kind, name)["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 1001,
        "fsGroupChangePolicy": "Always",
        "seccompProfile": {"type": "RuntimeDefault"},
        "supplementalGroups": [],
    }
    own = container_of(rendered, kind, name)["securityContext"]
    assert (own["runAsUser"], own["readOnlyRootFilesystem"]) == (user, True)
    assert "enabled" not in own


def test_security_context_that_is_off_is_left_to_the_platform(chart: Chart) -> None:
    off = {"podSecurityContext.enabled": False, "containerSecurityContext.enabled": False}
    rendered = chart.given(off)
    assert pod_of(rendered)["securityContext"] is None
    assert container_of(rendered)["securityContext"] is None


def test_update_strategy_goes_over_the_charts_own(rendered: list[Object]) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}
    for name, strategy in [(WORKER, rolling), (INTAKE, rolling), (HTTP, {"type": "Recreate"})]:
        spec = one(rendered, "Deployment", name)["spec"]
        assert spec["strategy"] == strategy, name
        assert spec["revisionHistoryLimit"] == 10, name


def test_serve_and_intake_workers_take_the_same_other_names(rendered: list[Object]) -> None:
    names = (WORKER, HTTP, INTAKE)
    counts = [one(rendered, "Deployment", name)["spec"]["replicas"] for name in names]
    assert counts == [3, 4, 5]
    env = {each["name"]: each for each in container_of(rendered, "Deployment", HTTP)["env"]}
    assert env["ROLE"]["value"] == "door"


def test_ingress_leads_to_serve_by_every_host(rendered: list[Object]) -> None:
    ingress = one(rendered, "Ingress", HTTP)
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "main"
    spec, service = ingress["spec"], one(rendered, "Service", HTTP)
    assert spec["ingressClassName"] == "nginx"
    port = {"name": service["spec"]["ports"][0]["name"]}
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": HTTP, "port": port}}}
    hosts = ["demo.example.com", "due.example.org"]
    assert spec["rules"] == [{"host": host, "http": {"paths": [path]}} for host in hosts]
    assert spec["tls"] == [
        {"hosts": [hosts[0]], "secretName": "demo.example.com-tls"},
        {"hosts": [hosts[1]], "secretName": "due"},
    ]
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["spec"]["ports"][0]["port"] == 8080
    assert service["metadata"]["annotations"]["example.com/internal"] == "true"


def test_own_words_of_the_service_count_before_those_of_other_charts(chart: Chart) -> None:
    theirs = {"type": "ClusterIP", "ports": {"http": 81}, "annotations": {"a": "b", "c": "d"}}
    ours = {"type": "NodePort", "annotations": {"a": "ours"}}
    values = {"service": theirs, "serve.service": ours, "serve.port": 82}
    service = one(chart.given(values, mode="serve"), "Service", HTTP)
    assert (service["spec"]["type"], service["spec"]["ports"][0]["port"]) == ("NodePort", 82)
    assert service["metadata"]["annotations"] == {"a": "ours", "c": "d"}


def test_monitoring_may_be_in_other_namespaces(rendered: list[Object]) -> None:
    monitor = one(rendered, "ServiceMonitor", WORKER)
    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["shop"]}
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint["scrapeTimeout"], endpoint["honorLabels"]) == ("10s", True)
    rules = one(rendered, "PrometheusRule")
    assert rules["metadata"]["namespace"] == "monitoring"
    for made in (monitor, rules):
        assert made["metadata"]["labels"]["prometheus"] == "main"
    dashboard = one(rendered, "ConfigMap", f"{WORKER}-dashboard")
    assert dashboard["metadata"]["namespace"] == "grafana"


@pytest.mark.parametrize(
    ("metrics", "count"),
    [
        ({"enabled": True, "serviceMonitor": {"enabled": True, "interval": "5s"}}, 1),
        ({"enabled": True, "serviceMonitor": {"enabled": True, "interval": ""}}, 1),
        ({"enabled": True}, 0),
        ({"serviceMonitor": {"enabled": True}}, 0),
        ({"enabled": False, "serviceMonitor": {"enabled": True}}, 0),
    ],
)
def test_monitor_of_other_charts_needs_metrics(chart: Chart, metrics: Object, count: int) -> None:
    rendered = chart.given({"metrics": metrics})
    monitors = [each for each in rendered if each["kind"] == "ServiceMonitor"]
    assert len(monitors) == count
    for each in monitors:
        interval = metrics["serviceMonitor"]["interval"] or "15s"
        assert each["spec"]["endpoints"][0]["interval"] == interval


def test_skeleton_of_other_charts_changes_only_what_it_says_of_pods(chart: Chart) -> None:
    rendered, plain = chart.mode("bitnami-skeleton"), chart.mode("kafka")

    def without_pods(found: list[Object]) -> list[Object]:
        return [each for each in found if each["kind"] not in ("Deployment", "Job", "Pod")]

    assert without_pods(rendered) == without_pods(plain)
    names = [(each["kind"], each["metadata"]["name"]) for each in plain]
    assert [(each["kind"], each["metadata"]["name"]) for each in rendered] == names
    for key in ("terminationGracePeriodSeconds", "topologySpreadConstraints", "volumes"):
        assert pod_of(rendered)[key] == pod_of(plain)[key], key
    for key in ("args", "env", "image", "resources", "ports"):
        assert container_of(rendered)[key] == container_of(plain)[key], key


def test_block_of_other_charts_that_is_null_is_as_if_it_were_not_there(chart: Chart) -> None:
    blocks: Object = {"pdb": None, "metrics": None, "service": None}
    assert chart.given(blocks, mode="serve") == chart.mode("serve")


def test_objects_of_ones_own_are_rendered_but_no_secret(
    chart: Chart, rendered: list[Object]
) -> None:
    assert one(rendered, "ConfigMap", "demo-routes")["data"] == {"routes": "reminders"}
    assert one(rendered, "ConfigMap", f"{WORKER}-more")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    for given in (secret, "kind: Secret\nmetadata: {name: a}\n"):
        with pytest.raises(ChartRefused, match=r"extraDeploy\.0: expected no Secret"):
            chart.given({"extraDeploy": [given]})


@pytest.mark.parametrize(
    ("values", "instead"),
    [
        ({next(iter(ELSEWHERE)): {"enabled": True}}, "expected no such value"),
        ({[*ELSEWHERE][-1]: {"enabled": True}}, "expected no such value"),
        ({"ingress": {"enabled": True}}, r"serve\.ingress"),
        ({"resourcesPreset": "small"}, "instead: resources"),
        ({"autoscaling": {"enabled": True, "minReplicas": 1}}, r"instead: scaling\.mode"),
        ({"autoscaling": {"hpa": {"enabled": True}}}, r"instead: scaling\.mode"),
        ({"clusterDomain": "other.local"}, "clusterDomain: expected"),
        ({"nodeAffinityPreset": {"type": "hard"}}, "instead: affinity"),
        ({"pdb": {"labels": {"a": "b"}}}, r"pdb\.labels: .* instead: podDisruptionBudget"),
        ({"metrics": {"port": 9}}, r"metrics\.port: .* instead: monitoring; metrics are always"),
        ({"metrics.serviceMonitor": {"selector": {"a": "b"}}}, r"monitoring\.serviceMonitor"),
        ({"metrics.prometheusRule": {"rules": [{}]}}, r"instead: monitoring\.rules"),
        ({"service": {"loadBalancerIP": "10.0.0.1"}}, r"instead: serve\.service"),
        ({"service": {"sessionAffinity": "ClientIP"}}, r"instead: serve\.service"),
        ({"service": {"ports": {"https": 443}}}, r"ports\.https: .* instead: serve\.port"),
        ({"service.type": "NodePort", "serve.enabled": False}, r"service\.type: expected"),
        ({"pdb": {"minAvailable": 1, "maxUnavailable": 1}}, "pdb: expected minAvailable or"),
        ({"terminationGracePeriodSeconds": "soon"}, "terminationGracePeriodSeconds"),
        ({"serve.ingress": {"enabled": True}}, r"ingress\.hostname: expected"),
        ({"serviceAccount": {"automountServiceAccountToken": True}}, "must be false"),
    ],
)
def test_word_of_other_charts_is_refused_with_the_one_to_use(
    chart: Chart, values: Object, instead: str
) -> None:
    with pytest.raises(ChartRefused, match=instead):
        chart.given(values, mode="serve")


def test_words_that_are_refused_are_none_of_this_chart() -> None:
    known = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))
    assert not ELSEWHERE.keys() & known.keys()


@pytest.mark.parametrize(
    ("place", "model"),
    [
        ("metrics", habits.Metrics),
        ("metrics.serviceMonitor", habits.TheirMonitor),
        ("metrics.prometheusRule", habits.TheirRules),
        ("pdb", habits.Pdb),
        ("service", habits.TheirService),
        ("service.ports", habits.Ports),
    ],
)
def test_words_that_are_mapped_are_those_that_the_schema_knows(
    place: str, model: type[habits.Habit]
) -> None:
    words = {field.alias for field in model.model_fields.values()}
    assert words == set(HABITS[place]["known"])
