"""`duebridge serve` in the chart: what it runs, who reaches it, and what it needs."""

from pathlib import Path

import pytest

from tests.deploy.api_server import api_server
from tests.deploy.chart import (
    FOLDER,
    Chart,
    ChartRefused,
    Object,
    component_of,
    container_of,
    loaded,
    one,
    pod_of,
)

NAME = "demo-duebridge-http"
OPEN = {"serve.enabled": True}


def test_serve_is_like_the_workers_but_for_its_command_and_port(chart: Chart) -> None:
    rendered = chart.mode("serve")
    mine, workers = container_of(rendered, "Deployment", NAME), container_of(rendered)
    assert mine["args"] == ["--config", "/etc/duebridge/duebridge.yaml", "serve"]
    for key in ("image", "securityContext", "volumeMounts", "workingDir"):
        assert mine[key] == workers[key]
    pods = pod_of(rendered, "Deployment", NAME), pod_of(rendered)
    for key in ("terminationGracePeriodSeconds", "securityContext", "volumes"):
        assert pods[0][key] == pods[1][key]
    assert one(rendered, "Deployment", NAME)["spec"]["replicas"] == 3


def test_serve_with_an_image_of_its_own_takes_the_rest_from_the_workers(chart: Chart) -> None:
    image = {"tag": "9", "pullPolicy": "Always"}
    serve = {"enabled": True, "image": {"repository": "theirs"}}
    rendered = chart.given({"image": image, "serve": serve}, "serve")
    mine, workers = container_of(rendered, "Deployment", NAME), container_of(rendered)
    assert (mine["image"], mine["imagePullPolicy"]) == ("theirs:0.2.0", "Always")
    assert workers["image"] == "duebridge:9"


def test_service_and_policies_find_the_pods_of_serve_alone(chart: Chart) -> None:
    rendered = chart.mode("serve")
    pods = {
        name: one(rendered, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        for name in (NAME, "demo-duebridge")
    }
    for selector in (
        one(rendered, "Deployment", NAME)["spec"]["selector"]["matchLabels"],
        one(rendered, "Service", NAME)["spec"]["selector"],
        one(rendered, "PodDisruptionBudget", NAME)["spec"]["selector"]["matchLabels"],
        one(rendered, "NetworkPolicy", NAME)["spec"]["podSelector"]["matchLabels"],
    ):
        assert [pod for pod, has in pods.items() if selector.items() <= has.items()] == [NAME]
    assert one(rendered, "Service", NAME)["spec"]["ports"][0]["port"] == 80


def test_network_policy_lets_in_who_is_named_and_out_as_the_workers(chart: Chart) -> None:
    rendered = chart.mode("serve")
    policy = one(rendered, "NetworkPolicy", NAME)["spec"]
    [rule] = policy["ingress"]
    assert rule["ports"] == [{"port": "http"}]
    assert "namespaceSelector" in rule["from"][0]
    assert policy["egress"] == one(rendered, "NetworkPolicy")["spec"]["egress"]


def test_configuration_listens_beyond_the_pod_with_tokens(chart: Chart) -> None:
    serve = loaded(chart.mode("serve")).serve
    assert (serve.listen, serve.tokens) == ("[::]:8480", "${file:/secrets/http/tokens.yaml}")
    assert "http" not in map(component_of, chart.mode("kafka")), "none unless it is asked for"


def test_serve_scales_on_cpu_apart_from_the_workers(chart: Chart) -> None:
    scaled = {"enabled": True, "minReplicas": 3, "maxReplicas": 6}
    rendered = chart.given({"serve.autoscaling": scaled}, mode="console")
    spec = one(rendered, "HorizontalPodAutoscaler", NAME)["spec"]
    assert spec["scaleTargetRef"]["name"] == NAME
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 6)
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 80
    replicas = {
        name: one(rendered, "Deployment", name)["spec"].get("replicas")
        for name in (NAME, "demo-duebridge")
    }
    assert replicas == {NAME: None, "demo-duebridge": 2}
    scaled["maxReplicas"] = 2
    with pytest.raises(ChartRefused, match=r"serve\.autoscaling\.maxReplicas: expected"):
        chart.given({"serve.autoscaling": scaled}, mode="console")


def test_console_and_senders_reach_the_same_pods(chart: Chart) -> None:
    rendered = chart.mode("console")
    [rule] = one(rendered, "NetworkPolicy", NAME)["spec"]["ingress"]
    allowed = [each["namespaceSelector"]["matchLabels"] for each in rule["from"]]
    assert {next(iter(each.values())) for each in allowed} == {"ingress-nginx", "shop"}
    volumes = {each["name"]: each for each in pod_of(rendered, "Deployment", NAME)["volumes"]}
    assert volumes["secret-http"]["secret"]["secretName"] == "duebridge-tokens"


def test_serve_without_tokens_is_refused(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match=r"config\.serve\.tokens: expected"):
        chart.given(OPEN)


OWN = ("--set=existingConfigMap=own", "--set=serve.enabled=true")
FOUND = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}}
BEYOND = 'tokens: "${file:/t}"'


@pytest.mark.parametrize(
    "serve", ["", "{rate: 5}", '{listen: "localhost:8480"}', f'{{listen: "[::]:80", {BEYOND}}}']
)
def test_refuse_config_map_whose_serve_no_probe_finds_says_where_to_listen(
    chart: Chart, tmp_path: Path, serve: str
) -> None:
    """The check passes, and the kubelet would restart its pods for ever."""
    found = {**FOUND, "data": {"duebridge.yaml": f"version: 1\nserve: {serve}\n"}}
    said = r'existingConfigMap: expected serve\.listen "\[::\]:8480" in own,'
    with api_server([found], tmp_path) as looked_up, pytest.raises(ChartRefused, match=said):
        chart.template(*looked_up, *OWN)


@pytest.mark.parametrize("listen", ["[::]:8480", "0.0.0.0:8480", "${LISTEN}"])
def test_take_config_map_whose_serve_probes_find_makes_its_pods(
    chart: Chart, tmp_path: Path, listen: str
) -> None:
    text = f'serve: {{listen: "{listen}", {BEYOND}}}'
    found = {**FOUND, "data": {"duebridge.yaml": text}}
    with api_server([found], tmp_path) as looked_up:
        assert container_of(chart.template(*looked_up, *OWN), "Deployment", NAME)


def test_notes_say_what_serve_needs_of_a_config_map_that_helm_cannot_read(chart: Chart) -> None:
    words = ("install", "demo", str(FOLDER), "--dry-run=client", *OWN)
    assert 'serve: {listen: "[::]:8480", tokens:' in chart.run(*words).partition("NOTES:\n")[2]


def test_ingress_without_tls_is_refused(chart: Chart) -> None:
    plain = {"enabled": True, "hostname": "due.example.com"}
    with pytest.raises(ChartRefused, match=r"serve\.ingress\.tls: expected true"):
        chart.given({"serve.ingress": plain}, mode="serve")


def test_ingress_of_a_wildcard_needs_a_secret_that_can_be_called_so(chart: Chart) -> None:
    wild = {"enabled": True, "hostname": "*.example.org", "tls": True}
    with pytest.raises(ChartRefused, match=r"serve\.ingress\.tls: .* entry of extraTls .* \*\.ex"):
        chart.given({"serve.ingress": wild}, mode="serve")


EXTRA = {"hosts": ["due.example.com"], "secretName": "due"}
WIDE = {"hosts": ["*.example.org"], "secretName": "wide"}
FURTHER = [{"name": "due.example.org"}]
FURTHER_TLS = {"hosts": ["due.example.org"], "secretName": "further"}


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ({"tls": True}, "due.example.org"),
        ({"tls": True, "extraTls": [EXTRA]}, "due.example.org"),
        ({"extraTls": [WIDE]}, "due.example.com"),
        ({"tls": True, "extraTls": [WIDE], "extraHosts": [{"name": "a.b.example.org"}]}, "a.b.e"),
    ],
)
def test_ingress_with_a_host_outside_its_tls_is_refused_by_its_name(
    chart: Chart, given: Object, host: str
) -> None:
    ingress = {"enabled": True, "hostname": "due.example.com", "extraHosts": FURTHER, **given}
    with pytest.raises(ChartRefused, match=rf'serve\.ingress\.extraTls: .* the host "{host}'):
        chart.given({"serve.ingress": ingress}, mode="serve")


@pytest.mark.parametrize(
    ("given", "secrets"),
    [
        ({"tls": True}, ["due.example.com-tls"]),
        ({"hostname": "*.example.org", "extraTls": [WIDE]}, ["wide"]),
        ({"extraTls": [EXTRA]}, ["due"]),
        ({"tlsElsewhere": True}, []),
        ({"tlsElsewhere": True, "extraHosts": FURTHER}, []),
        ({"extraHosts": FURTHER, "extraTls": [EXTRA, WIDE]}, ["due", "wide"]),
        ({"extraHosts": FURTHER, "extraTls": [EXTRA, FURTHER_TLS]}, ["due", "further"]),
        ({"extraHosts": FURTHER, "extraTls": [{"secretName": "all"}]}, ["all"]),
    ],
)
def test_ingress_with_tls_here_or_before_it_is_made(
    chart: Chart, given: Object, secrets: list[str]
) -> None:
    ingress = {"enabled": True, "hostname": "due.example.com", **given}
    spec = one(chart.given({"serve.ingress": ingress}, mode="serve"), "Ingress", NAME)["spec"]
    assert [each["secretName"] for each in spec.get("tls", [])] == secrets
