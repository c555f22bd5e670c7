"""What platform teams expect of any chart, in the words of others: Bitnami's, KEDA's, Prometheus'.

`ci/bitnami-values.yaml` is what somebody writes by habit.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.deploy.chart import (
    FOLDER,
    Chart,
    ChartRefused,
    Object,
    component_of,
    one,
    pod_templates,
)

WORKER, HTTP, INTAKE = "demo-duebridge", "demo-duebridge-http", "demo-duebridge-retries"
PROGRAMS = (WORKER, HTTP, INTAKE)
CHECK = "demo-duebridge-check"


@pytest.fixture(scope="module")
def rendered(chart: Chart) -> list[Object]:
    return chart.mode("bitnami")


def template_of(rendered: list[Object], name: str) -> Object:
    kind = "Job" if name == CHECK else "Deployment"
    template: Object = one(rendered, kind, name)["spec"]["template"]
    return template


def container_of(rendered: list[Object], name: str) -> Object:
    container: Object = template_of(rendered, name)["spec"]["containers"][0]
    return container


def named(items: list[Object]) -> dict[str, Object]:
    return {each["name"]: each for each in items}


@pytest.mark.parametrize("name", [*PROGRAMS, CHECK])
def test_settings_of_pods_reach_every_program(rendered: list[Object], name: str) -> None:
    pod, container = template_of(rendered, name)["spec"], container_of(rendered, name)
    names = [each["name"] for each in pod["imagePullSecrets"]]
    assert names == ["mirror", "platform", "hub"]
    assert container["image"] == "mirror.example.com/platform/duebridge:0.2.0"
    assert container["envFrom"] == [
        {"configMapRef": {"name": "shared-settings"}},
        {"secretRef": {"name": "shared-secrets"}},
    ]
    env = named(container["env"])
    assert env["TZ"]["value"] == "UTC"
    assert env["REDIS_URL"]["valueFrom"]["secretKeyRef"]["name"] == "demo-redis"
    assert named(pod["volumes"])["trust"]["configMap"] == {"name": "corporate-ca"}
    assert named(container["volumeMounts"])["trust"]["mountPath"] == "/etc/ssl/corporate"
    assert pod["initContainers"][0]["name"] == "wait-for-redis"
    assert pod["hostAliases"] == [{"ip": "10.1.2.3", "hostnames": ["kafka.internal"]}]
    assert pod["dnsConfig"] == {"options": [{"name": "ndots", "value": "2"}]}
    plain = {"dnsPolicy": "ClusterFirst", "schedulerName": "batch-scheduler"}
    assert plain.items() <= pod.items()
    assert pod["runtimeClassName"] == "gvisor"


@pytest.mark.parametrize("name", PROGRAMS)
def test_probe_is_tuned_over_its_defaults_or_taken_away(rendered: list[Object], name: str) -> None:
    container = container_of(rendered, name)
    port = container["ports"][0]["name"]
    whole = {"tcpSocket": {"port": "http"}, "periodSeconds": 9}  # of serve
    assert name != HTTP or container["livenessProbe"] == whole
    assert name == HTTP or container["livenessProbe"] == {
        "httpGet": {"path": "/livez", "port": port},
        "initialDelaySeconds": 10,
        "periodSeconds": 5,
        "timeoutSeconds": 3,
        "failureThreshold": 3,
        "terminationGracePeriodSeconds": 3,
    }
    assert "startupProbe" not in container
    command = ["/bin/sleep", "9"] if name == HTTP else ["/bin/true"]
    assert container["lifecycle"] == {"preStop": {"exec": {"command": command}}}


def test_custom_probe_stands_instead(chart: Chart) -> None:
    probe = {"tcpSocket": {"port": "health"}, "periodSeconds": 7}
    rendered = chart.given({"customReadinessProbe": probe})
    assert container_of(rendered, WORKER)["readinessProbe"] == probe
    over = chart.given({"readinessProbe": {"exec": {"command": ["true"]}}})
    assert "httpGet" not in container_of(over, WORKER)["readinessProbe"]


def test_program_may_have_settings_of_its_own_instead(rendered: list[Object]) -> None:
    pods = {name: template_of(rendered, name)["spec"] for name in PROGRAMS}
    assert pods[HTTP]["nodeSelector"]["example.com/zone"] == "edge"
    assert pods[WORKER]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    classes = [pods[name]["priorityClassName"] for name in PROGRAMS]
    assert classes == ["business", "front", "business"]
    thresholds = [
        container_of(rendered, name)["readinessProbe"]["failureThreshold"] for name in PROGRAMS
    ]
    assert thresholds == [2, 5, 2]
    assert [len(pods[name]["containers"]) for name in PROGRAMS] == [2, 2, 1]
    assert pods[INTAKE]["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert named(container_of(rendered, INTAKE)["env"])["ROLE"]["value"] == "intake"


def test_sidecar_of_the_workers_ends_with_the_check(rendered: list[Object]) -> None:
    pod = template_of(rendered, CHECK)["spec"]
    assert [each["name"] for each in pod["containers"]] == ["check"]
    sidecar = named(pod["initContainers"])["tunnel"]
    assert sidecar["restartPolicy"] == "Always"
    assert "restartPolicy" not in template_of(rendered, WORKER)["spec"]["containers"][1]


def test_common_labels_and_annotations_are_on_everything(rendered: list[Object]) -> None:
    for each in rendered:
        metadata = each["metadata"]
        assert metadata["labels"]["team"] == "orders", metadata["name"]
        assert metadata["labels"]["example.com/release"] == "demo", metadata["name"]
        assert metadata["annotations"]["example.com/owner"] == "orders", metadata["name"]
    for name, template in pod_templates(rendered):
        labels = template["metadata"]["labels"]
        assert labels["team"] == "payments", name  # podLabels are nearer
        annotations = template["metadata"]["annotations"]
        assert annotations["example.com/inject"] == "false", name
        assert "example.com/owner" not in annotations, "a new owner restarts nobody"


@pytest.mark.parametrize("where", ["commonLabels", "podLabels"])
def test_label_of_values_moves_no_selector(chart: Chart, where: str) -> None:
    own = {"app.kubernetes.io/name": "other", "app.kubernetes.io/component": "x", "a": "b"}
    rendered, before = chart.given({where: own}), chart.mode("kafka")
    spec, spec_before = (one(each, "Deployment")["spec"] for each in (rendered, before))
    assert spec["selector"] == spec_before["selector"]
    labels = spec["template"]["metadata"]["labels"]
    assert labels == spec_before["template"]["metadata"]["labels"] | {"a": "b"}
    assert component_of(one(rendered, "Service")) == "worker"


def test_replica_count_and_spread_are_those_that_are_given(rendered: list[Object]) -> None:
    spec = one(rendered, "Deployment", WORKER)["spec"]
    assert spec["replicas"] == 3
    [spread] = spec["template"]["spec"]["topologySpreadConstraints"]
    selected = {"app.kubernetes.io/instance": "demo"}
    assert spread["labelSelector"] == {"matchLabels": selected}


def test_registry_of_all_goes_before_every_image(chart: Chart) -> None:
    rendered = chart.given({"global.imageRegistry": "mirror"}, mode="trial")
    images = {
        container["image"]
        for _, template in pod_templates(rendered)
        for container in template["spec"]["containers"]
    }
    assert images == {"mirror/duebridge:0.2.0", "mirror/valkey/valkey:9.0"}


def test_variables_reach_jobs_on_spark_too(chart: Chart) -> None:
    values = {"extraEnv": [{"name": "A", "value": "b"}], "envFrom": [{"secretRef": {"name": "s"}}]}
    for _, template in pod_templates(chart.given(values, mode="spark-cronjob")):
        [container] = template["spec"]["containers"]
        assert named(container["env"])["A"]["value"] == "b"
        assert container["envFrom"] == values["envFrom"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_reloader_replaces_pods_when_a_secret_changes(
    chart: Chart, rendered: list[Object], name: str
) -> None:
    key = "secret.reloader.stakater.com/auto"
    assert one(rendered, "Deployment", name)["metadata"]["annotations"][key] == "true"
    plain = one(chart.mode("kafka"), "Deployment")["metadata"]
    assert "annotations" not in plain


def test_annotation_is_never_a_template(chart: Chart) -> None:
    text = '{{- with secret "kv/redis" }}{{ .Data.url }}{{ end }}'
    rendered = chart.given({"podAnnotations": {"vault/template": text}})
    assert template_of(rendered, WORKER)["metadata"]["annotations"]["vault/template"] == text


@pytest.mark.parametrize(
    "values",
    [
        {"extraEnv": {"A": "b"}},
        {"imagePullSecrets": [{"secret": "a"}]},
        {"serve": {"extraVolumes": "a"}},
        {"intakeWorkers": {"a": {"replicaCount": 0}}},
    ],
)
def test_wrong_setting_of_pods_is_refused(chart: Chart, values: Object) -> None:
    with pytest.raises(ChartRefused, match=next(iter(values))):
        chart.given(values)


def test_helm_test_asks_every_service(rendered: list[Object]) -> None:
    pod = one(rendered, "Pod", "demo-duebridge-test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    ports = {
        service["metadata"]["name"]: service["spec"]["ports"][0]["port"]
        for service in rendered
        if service["kind"] == "Service"
    }
    urls = {f"http://{name}:{port}/readyz" for name, port in ports.items()}
    [container] = pod["spec"]["containers"]
    assert set(container["args"]) == urls
    assert len(urls) == 3


def test_helm_test_is_let_in_whoever_else_may_ask(rendered: list[Object]) -> None:
    policy = one(rendered, "NetworkPolicy", "demo-duebridge-test")["spec"]
    labels = one(rendered, "Pod", "demo-duebridge-test")["metadata"]["labels"]
    [rule] = policy["ingress"]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    asked = {container_of(rendered, name)["ports"][0]["containerPort"] for name in PROGRAMS}
    assert asked == {each["port"] for each in rule["ports"]}


@pytest.fixture
def address() -> Iterator[str]:
    """Answer /readyz with 200 and all else with 503."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/readyz" else 503)
            self.end_headers()
            self.wfile.write(b"what is wrong")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("paths", "code", "said"),
    [
        (["/readyz", "/readyz"], 0, "200"),
        (["/other", "/readyz"], 1, "503 what is wrong"),
    ],
)
def test_program_of_helm_test_fails_unless_all_are_ready(
    chart: Chart, address: str, paths: list[str], code: int, said: str
) -> None:
    [container] = one(chart.mode("kafka"), "Pod", "demo-duebridge-test")["spec"]["containers"]
    program = container["command"][-1]
    assert program == (FOLDER / "files" / "ready.py").read_text("utf-8")
    urls = [address + path for path in paths]
    done = subprocess.run([sys.executable, "-c", program, *urls], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert said in done.stdout
