"""What the pods may do: as little as Kubernetes' restricted profile says, in every mode."""

import pytest

from duebridge.config.load import load_config_text
from tests.deploy.chart import MODES, Chart, ChartRefused, configuration, one, pod_templates

SPARK_POD = ("driver", "executor")


@pytest.mark.parametrize("mode", MODES)
def test_pods_of_mode_are_restricted(chart: Chart, mode: str) -> None:
    pods = list(pod_templates(chart.mode(mode)))
    assert pods
    for name, template in pods:
        pod = template["spec"]
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        kinds = {kind for volume in pod.get("volumes", ()) for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}, name
        for container in pod["containers"]:
            assert_container_is_restricted(container["securityContext"])


def assert_container_is_restricted(context: dict[str, object]) -> None:
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_drivers_and_executors_are_restricted(chart: Chart) -> None:
    application = one(
        chart.mode("spark-operator"), "ScheduledSparkApplication", "demo-duebridge-hydrate"
    )
    for pod in SPARK_POD:
        spec = application["spec"]["template"][pod]
        assert spec["podSecurityContext"]["runAsNonRoot"] is True
        assert_container_is_restricted(spec["securityContext"])


def test_user_null_leaves_it_to_the_platform(chart: Chart) -> None:
    pod = one(chart.mode("bare"), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}


@pytest.mark.parametrize("mode", MODES)
def test_mode_makes_no_secret_and_no_right(chart: Chart, mode: str) -> None:
    forbidden = {"Secret", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
    assert not forbidden & {each["kind"] for each in chart.mode(mode)}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "bare"])
def test_service_account_has_no_token(chart: Chart, mode: str) -> None:
    rendered = chart.mode(mode)
    account = one(rendered, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    pod = one(rendered, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]


def test_secrets_come_by_reference_as_variables_and_files(chart: Chart) -> None:
    for name, template in pod_templates(chart.mode("secrets")):
        [container], volumes = template["spec"]["containers"], template["spec"]["volumes"]
        env = {each["name"]: each.get("valueFrom") for each in container["env"]}
        assert env["REDIS_URL"] == {"secretKeyRef": {"name": "redis", "key": "url"}}, name
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        [secret] = [each for each in volumes if each["name"] == mounts["/secrets/kafka"]]
        assert secret["secret"] == {"secretName": "kafka-client", "defaultMode": 0o440}, name


def test_configuration_keeps_its_references(chart: Chart) -> None:
    config = load_config_text(configuration(chart.mode("secrets")), "duebridge.yaml")
    assert config.store.url == "${REDIS_URL}"


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("config.store", {"url": "redis://:hunter2@redis:6379/0"}, "config.store.url"),
        ("config.store", {"url": "rediss://app:hunter2@redis/0"}, "config.store.url"),
        (
            "config.brokers.billing",
            {"type": "rabbitmq", "url": "amqp://app:hunter2@rabbit/%2F"},
            "config.brokers.billing.url",
        ),
        (
            "config.brokers.billing",
            {
                "type": "kafka",
                "bootstrap_servers": ["k:1"],
                "options": {"sasl.password": "hunter2"},
            },
            "config.brokers.billing.options.sasl.password",
        ),
        (
            "config.brokers.billing",
            {
                "type": "kafka",
                "bootstrap_servers": ["k:1"],
                "options": {"sasl.jaas.config": "hunter2"},
            },
            "config.brokers.billing.options.sasl.jaas.config",
        ),
    ],
)
def test_password_in_values_is_refused_and_not_repeated(
    chart: Chart, key: str, value: object, place: str
) -> None:
    with pytest.raises(ChartRefused) as refused:
        chart.given({key: value})
    assert f"{place}: expected" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["redis://redis:6379/0", "redis://app:${PASSWORD}@redis:6379/0", "${URL:-redis://a:b@c/0}"],
)
def test_url_without_password_of_its_own_is_taken(chart: Chart, url: str) -> None:
    rendered = chart.given({"config.store": {"url": url}})
    assert load_config_text(configuration(rendered), "duebridge.yaml").store.url == url


def test_network_policy_lets_only_probes_and_metrics_in(chart: Chart) -> None:
    policy = one(chart.mode("kafka"), "NetworkPolicy")["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "health"}]}]
    assert policy["policyTypes"] == ["Ingress"]


def test_network_policy_with_rules_lets_nothing_else_out_but_dns(chart: Chart) -> None:
    policy = one(chart.mode("production"), "NetworkPolicy")["spec"]
    dns, *given = policy["egress"]
    assert dns == {"ports": [{"port": 53, "protocol": kind} for kind in ("UDP", "TCP")]}
    assert [rule["ports"] for rule in given] == [[{"port": 6379}, {"port": 9092}]]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"][0]["from"][0].keys() == {"namespaceSelector"}


def test_network_policy_lets_workers_reach_the_bundled_store(chart: Chart) -> None:
    rendered = chart.mode("trial-volume")
    rules = one(rendered, "NetworkPolicy", "demo-duebridge")["spec"]["egress"]
    [to_store] = [rule for rule in rules if rule["ports"] == [{"port": 6379}]]
    labels = one(rendered, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selected = to_store["to"][0]["podSelector"]["matchLabels"]
    assert selected.items() <= labels.items()
