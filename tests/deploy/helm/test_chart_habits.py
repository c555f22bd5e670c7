"""Words of Bitnami's charts: some mean the same here, of others Helm says what to write instead.

`ci/bitnami-values.yaml` has them; test_chart_adopters has the settings of pods.
"""

import pytest
import yaml

from tests.deploy.chart import FOLDER, Chart, ChartRefused, Object, container_of, one, pod_of

WORKER, HTTP, INTAKE = "demo-duebridge", "demo-duebridge-http", "demo-duebridge-retries"
ELSEWHERE = yaml.safe_load((FOLDER / "files" / "elsewhere.yaml").read_text("utf-8"))


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
    assert service["metadata"]["annotations"]["example.com/internal"] == "true"


def test_monitoring_may_be_in_other_namespaces(rendered: list[Object]) -> None:
    monitor = one(rendered, "ServiceMonitor", WORKER)
    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["shop"]}
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint["scrapeTimeout"], endpoint["honorLabels"]) == ("10s", True)
    assert one(rendered, "PrometheusRule")["metadata"]["namespace"] == "monitoring"
    dashboard = one(rendered, "ConfigMap", f"{WORKER}-dashboard")
    assert dashboard["metadata"]["namespace"] == "grafana"


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
        *(({key: {"enabled": True}}, f"{key}: expected no such value") for key in ELSEWHERE),
        ({"ingress": {"enabled": True}}, r"serve\.ingress"),
        ({"resourcesPreset": "small"}, "instead: resources"),
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
