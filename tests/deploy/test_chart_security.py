"""What the pods may do: as little as Kubernetes' restricted profile says, in every mode."""

import pytest

from tests.deploy.chart import (
    MODES,
    Chart,
    ChartRefused,
    Object,
    loaded,
    one,
    pod_of,
    pod_templates,
)


@pytest.mark.parametrize("mode", MODES)
def test_pods_of_mode_are_restricted_and_it_makes_no_secret_and_no_right(
    chart: Chart, mode: str
) -> None:
    forbidden = {"Secret", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
    assert not forbidden & {each["kind"] for each in chart.mode(mode)}
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
    kind = "ScheduledSparkApplication"
    application = one(chart.mode("spark-operator"), kind, "demo-duebridge-hydrate")
    for pod in ("driver", "executor"):
        spec = application["spec"]["template"][pod]
        assert spec["podSecurityContext"]["runAsNonRoot"] is True
        assert_container_is_restricted(spec["securityContext"])


def test_user_null_leaves_it_to_the_platform(chart: Chart) -> None:
    pod = pod_of(chart.mode("bare"))
    assert pod["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "bare"])
def test_service_account_has_no_token(chart: Chart, mode: str) -> None:
    rendered = chart.mode(mode)
    account = one(rendered, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    pod = pod_of(rendered)
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
    config = loaded(chart.mode("secrets"))
    assert config.store.url == "${REDIS_URL}"


def kafka(**options: str) -> Object:
    return {"type": "kafka", "bootstrap_servers": ["k:1"], "options": options}


RABBITMQ = {"type": "rabbitmq", "url": "amqp://app:hunter2@rabbit/%2F"}


@pytest.mark.parametrize(
    ("place", "setting", "value"),
    [
        ("config.store", "url", {"url": "redis://:hunter2@redis:6379/0"}),
        ("config.store", "url", {"url": "rediss://app:hunter2@redis/0"}),
        ("config.brokers.billing", "url", RABBITMQ),
        *(
            ("config.brokers.billing", f"options.{name}", kafka(**{name: "hunter2"}))
            for name in ("sasl.password", "sasl.jaas.config")
        ),
    ],
)
def test_password_in_values_is_refused_and_not_repeated(
    chart: Chart, place: str, setting: str, value: Object
) -> None:
    with pytest.raises(ChartRefused) as refused:
        chart.given({place: value})
    assert f"{place}.{setting}: expected" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["redis://redis:6379/0", "redis://app:${PASSWORD}@redis:6379/0", "${URL:-redis://a:b@c/0}"],
)
def test_url_without_password_of_its_own_is_taken(chart: Chart, url: str) -> None:
    rendered = chart.given({"config.store": {"url": url}})
    assert loaded(rendered).store.url == url


def test_network_policy_lets_probes_in_and_with_rules_only_those_and_dns_out(
    chart: Chart,
) -> None:
    plain = one(chart.mode("kafka"), "NetworkPolicy")["spec"]
    assert plain["ingress"] == [{"ports": [{"port": "health"}]}]
    assert plain["policyTypes"] == ["Ingress"]
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
