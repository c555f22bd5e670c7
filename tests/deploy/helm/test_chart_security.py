"""What the pods may do: as little as Kubernetes' restricted profile says, in every mode."""

import json
from pathlib import Path

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
    values_of,
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


def test_service_account_has_no_token(chart: Chart) -> None:
    for mode in MODES:
        if mode == "bare":
            continue
        rendered = chart.mode(mode)
        account = one(rendered, "ServiceAccount")
        assert account["automountServiceAccountToken"] is False, mode
        assert pod_of(rendered)["serviceAccountName"] == account["metadata"]["name"], mode


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


def rabbitmq(url: str = "amqp://rabbit/%2F", **options: object) -> Object:
    return {"type": "rabbitmq", "url": url, "options": options}


def tier(path: str, option: str = "region") -> Object:
    return {
        "target": {"broker": "orders", "topic": "t"},
        "cold_tier": {"path": path, "horizon": "24h", "options": {option: "hunter2"}},
    }


STORE, BROKER = "config.store", "config.brokers.billing"
KEY = "-----BEGIN RSA PRIVATE KEY-----hunter2"
IN_THE_STORES_URL = (
    "redis://:hunter2@redis:6379/0",
    "rediss://app:hunter2@redis/0",
    "redis+sentinel://app:hunter2@a,b/main",
    "redis://redis:6379/0?password=hunter2",
    "redis://redis:6379/0?db=1&PassWord=hunter2",
    "redis://redis:6379/0?pass%77ord=hunter2",
    "redis+sentinel://a,b/main?sentinel_password=hunter2",
    "unix:///run/redis?password=hunter2",
    "redis://app:${PW:-hunter2}@redis/0",
    "redis://redis/0?password=${PW:-hunter2}",
    "${URL:-redis://:hunter2@redis/0}",
    "redis://app:$${hunter2}@redis/0",
    "redis://app:${PREFIX}hunter2@redis/0",
    # as a generated password is often written, and clients take it
    "redis://:hun/ter2-hunter2@redis:6379/0",
    "redis://:hun@ter2-hunter2@redis:6379/0",
    "https://hunter2@proxy/redis",
    "rediss://redis/0?auth=hunter2",
)
KAFKA_OPTIONS = (
    "sasl.password",
    "sasl_plain_password",
    "sasl.jaas.config",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.client.secret",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.key.pem",
    "SASL.PASSWORD",
    "sasl.kerberos.kinit.cmd",
    "sasl.oauthbearer.extensions",
    "schema.registry.basic.auth.user.info",
    "auth",
    "ssl.keystore.private.pem",
    "encryption.key",
    "connectionString",
)


# Nothing but the value says what it is.
ANYWHERE = (
    "https://a.blob.core.windows.net/c?sv=1&sig=hunter2",
    "SharedAccessSignature sr=hunter2",
    "Authorization: Basic hunter2",
    "Bearer hunter2",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.hunter2",
    "hunter2/K7MDENG/bPxRfiCYEXA3PLE9KEY",
)
TIER = ("azure_storage_sas_key", "aws_sse_customer_key_base64", "sas_token", "master_key", "key")
VARIABLES = (
    "AWS_SECRET_ACCESS_KEY",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "REDIS_AUTH",
    "S3_KEY",
    "SENTRY_DSN",
    "DB_PW",
    "MYSQLPASS",
    "dbPassNew",
    "BABYPASSWORD",
)
SPARK = (
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.azure.account.key.ACCT.dfs.core.windows.net",
    "spark.authenticate.secret",
    "spark.ssl.keyPassword",
    "spark.hadoop.fs.azure.sas.c.acct",
)


@pytest.mark.parametrize(
    ("place", "setting", "value"),
    [
        *((STORE, "url", {"url": url}) for url in IN_THE_STORES_URL),
        (BROKER, "url", rabbitmq("amqp://app:hunter2@rabbit/%2F")),
        (BROKER, "url", rabbitmq("amqp://app:${PW:-hunter2}@rabbit/%2F")),
        (BROKER, "url", rabbitmq("amqp://app:h/unter2-hunter2@rabbit/%2F")),
        (BROKER, "url", rabbitmq("amqps://rabbit/?ssl_options={'password': 'hunter2'}")),
        (BROKER, "options.ssl_options.password", rabbitmq(ssl_options={"password": "hunter2"})),
        (BROKER, "options.client_properties.a", rabbitmq(client_properties={"a": "token=hunter2"})),
        *((BROKER, f"options.{name}", kafka(**{name: "hunter2"})) for name in KAFKA_OPTIONS),
        (BROKER, "options.sasl.password", kafka(**{"sasl.password": "${PW:-hunter2}"})),
        (BROKER, "options.sasl.password", kafka(**{"sasl.password": "${A}-hunter2"})),
        (BROKER, "options.ssl.anything", kafka(**{"ssl.anything": KEY})),
        *((BROKER, "options.client.id", kafka(**{"client.id": value})) for value in ANYWHERE),
        ("config.serve", "tokens", {"tokens": "hunter2"}),
        ("config.routes.far", "cold_tier.path", tier("s3://id:hunter2@bucket/x")),
        ("config.routes.far", "cold_tier.path", tier("s3://bucket/x?secret_key=hunter2")),
        *(
            ("config.routes.far", f"cold_tier.options.{name}", tier("s3://b/x", name))
            for name in TIER
        ),
        *(("env", name, {name: "hunter2"}) for name in VARIABLES),
        ("env", "REDIS_URL", {"REDIS_URL": "redis://:hunter2@redis/0"}),
        ("env", "REDIS_URL", {"REDIS_URL": "redis://:$hunter2@redis/0"}),
        *(("spark.conf", name, {name: "hunter2"}) for name in SPARK),
    ],
)
def test_password_in_values_is_refused_and_not_repeated(
    chart: Chart, tmp_path: Path, place: str, setting: str, value: Object
) -> None:
    nested: Object = value
    for key in reversed(place.split(".")):
        nested = {key: nested}
    file = tmp_path / "values.json"
    file.write_text(json.dumps(nested), "utf-8")
    with pytest.raises(ChartRefused) as refused:
        chart.template("-f", str(values_of("kafka")), "-f", str(file))
    assert f"{place}.{setting}: expected" in str(refused.value)
    assert "under secrets.env" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def variable(name: str = "A", value: str = "hunter2") -> list[Object]:
    return [{"name": name, "value": value}]


URL = "redis://:hunter2@redis"
PODS: list[tuple[str, object, str]] = [
    ("extraEnv", variable("REDIS_PASSWORD"), "extraEnv.0.value"),
    ("extraEnv", variable(value=URL), "extraEnv.0.value"),
    ("extraEnv", variable(value="redis://:{{ .Values.global.hunter2 }}@redis"), "extraEnv.0.value"),
    ("extraEnvVars", variable("OTEL_EXPORTER_OTLP_HEADERS"), "extraEnvVars.0.value"),
    ("extraEnvVars", variable(value="Authorization=Bearer hunter2"), "extraEnvVars.0.value"),
    ("serve.extraEnv", variable("API_TOKEN"), "serve.extraEnv.0.value"),
    ("intakeWorkers", {"a": {"extraEnv": variable(value=URL)}}, "intakeWorkers.a.extraEnv.0.value"),
    ("podAnnotations", {"a": URL}, "podAnnotations.a"),
    ("podAnnotations", {"example.com/token": "hunter2"}, "podAnnotations.example.com/token"),
    ("commonAnnotations", {"a": "password=hunter2"}, "commonAnnotations.a"),
    ("serviceAccount.annotations", {"a": URL}, "serviceAccount.annotations.a"),
    ("sidecars", [{"name": "s", "args": ["--token", "hunter2"]}], "sidecars.0.args.1"),
    ("sidecars", [{"name": "s", "args": ["--mysqlpass=hunter2"]}], "sidecars.0.args.0"),
    ("initContainers", [{"name": "s", "env": variable("PW")}], "initContainers.0.env.0.value"),
    (
        "readinessProbe.httpGet",
        {"httpHeaders": variable("Authorization")},
        "readinessProbe.httpGet.httpHeaders.0.value",
    ),
    (
        "spark.jobs",
        {"a": {"run": "hydrate", "args": ["--secret-key=hunter2"], "schedule": "@daily"}},
        "spark.jobs.a.args.0",
    ),
]


PROJECTED = {"serviceAccountToken": {"path": "token", "audience": "vault"}}


@pytest.mark.parametrize(("key", "value", "place"), PODS)
def test_password_in_a_setting_of_pods_is_refused_and_not_repeated(
    chart: Chart, key: str, value: object, place: str
) -> None:
    with pytest.raises(ChartRefused) as refused:
        chart.given({key: value})
    assert f"{place}: expected no secret here" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (
            "extraEnv",
            [
                *variable("REDIS_PASSWORD_FILE", "/secrets/redis/password"),
                *variable("AWS_ACCESS_KEY_ID", "duebridge"),
                *variable("KEY_PREFIX", "shop"),
                *variable("AUTH_MODE", "tls"),
                *variable("REDIS_URL", "redis://:$(REDIS_PASSWORD)@redis:6379/0"),
                *variable("PROXY", "http://proxy:3128/users/@me"),
                *variable("IMAGE", "mirror:5000/duebridge@sha256:0123456789abcdef0123456789abcdef"),
                {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
            ],
        ),
        (
            "podAnnotations",
            {
                "vault.hashicorp.com/agent-inject-secret-redis": "kv/data/redis",
                "vault.hashicorp.com/agent-inject-token": "true",
                "vault.hashicorp.com/agent-inject-template-redis": (
                    '{{ with secret "kv/redis" }}export PASSWORD={{ .Data.password }}{{ end }}'
                ),
            },
        ),
        (
            "initContainers",
            [
                {
                    "name": "w",
                    "command": ["sh", "-c", "redis-cli -a $PW --user=a PASSWORD=${PW} ping"],
                }
            ],
        ),
        ("extraVolumes", [{"name": "p", "projected": {"sources": [PROJECTED]}}]),
        ("tolerations", [{"key": "example.com/token", "operator": "Exists"}]),
        ("spark.conf", {"spark.kubernetes.driver.secretKeyRef.PW": "redis:password"}),
        ("spark.conf", {"spark.authenticate": "true", "spark.ssl.keyStoreType": "PKCS12"}),
        ("spark.jobs", {"token-report": {"run": "hydrate", "args": ["a"], "schedule": "@daily"}}),
        (
            "serviceAccount.annotations",
            {"a": "arn:aws:iam::123456789012:role/duebridge/BridgeWorkersOfTheShopInProduction1"},
        ),
        ("env", {"BYPASS_PROXY": "kafka", "noProxyBypass": "kafka", "PASSENGERS": "4"}),
        ("initContainers", [{"name": "w", "args": ["--bypass-proxy=kafka", "--passive=true"]}]),
        ("imagePullSecrets", [{"name": "token-of-the-registry"}]),
        ("extraEnvVarsSecret", "passwords"),
    ],
)
def test_setting_of_pods_that_only_sounds_secret_is_taken(
    chart: Chart, key: str, value: object
) -> None:
    assert chart.given({key: value})


@pytest.mark.parametrize(
    "url",
    [
        "redis://redis:6379/0",
        "redis://app:${PASSWORD}@redis:6379/0",
        "redis://redis/0?password=${PASSWORD}",
        "rediss://redis/0?ssl_ca_certs=/secrets/redis/ca.crt&ssl_keyfile=/secrets/redis/key",
        "${URL:-redis://redis/0}",
    ],
)
def test_url_without_password_of_its_own_is_taken(chart: Chart, url: str) -> None:
    rendered = chart.given({"config.store": {"url": url}})
    assert loaded(rendered).store.url == url


GENERATED = "OrderTimeout2Region3Europe4Production"  # as far as a rule can tell


def test_topics_queues_and_keys_of_exchanges_may_look_generated(chart: Chart) -> None:
    kafka_target = {"broker": "orders", "topic": GENERATED}
    target = {"broker": "billing", "exchange": GENERATED, "routing_key": GENERATED}
    source = {"broker": "billing", "queue": f"{GENERATED}.intake"}
    intake = {"source": source, "route": "a"}
    rendered = chart.given(
        {
            "config.brokers.billing": {"type": "rabbitmq", "url": "amqp://rabbit/%2F"},
            "config.routes.a": {"target": target, "dead_letter": {**target, "exchange": ""}},
            "config.routes.b": {"target": kafka_target, "allow_targets": [kafka_target]},
            "config.intakes.a": intake,
        }
    )
    assert loaded(rendered).routes["a"].target.exchange == GENERATED
    with pytest.raises(ChartRefused, match=r"client\.id: expected"):
        chart.given({"config.brokers.a": kafka(**{"client.id": GENERATED})})


def test_value_that_is_named_harmless_is_taken_and_no_other(chart: Chart) -> None:
    values: Object = {
        "config.brokers.a": kafka(**{"client.id": GENERATED}),
        "extraEnv": variable("DOOR_TOKEN", "none"),
    }
    places = ["config.brokers.a.options.client.id", "extraEnv.0.value"]
    for place in places:
        others = [each for each in places if each != place]
        with pytest.raises(ChartRefused, match=rf"{place}: .* add {place} to secrets\.harmless"):
            chart.given(values | {"secrets.harmless": others})
    assert chart.given(values | {"secrets.harmless": places})


def test_references_paths_and_names_that_only_sound_secret_are_taken(chart: Chart) -> None:
    options = {
        "sasl.password": "${file:/secrets/kafka/password}",
        "sasl.oauthbearer.token.provider": "shop.tokens:of_kafka",
        "ssl.key.location": "/secrets/kafka/tls.key",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example:8443/token/@me",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.kerberos.service.name": "kafka",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.keystore.type": "PKCS12",
        "metadata.max.age.ms": "30000",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nMIIDazCCAlOg\n-----END CERTIFICATE-----",
    }
    route = {"target": {"broker": "token-vault", "topic": "password-resets"}}
    rendered = chart.given(
        {"config.brokers.token-vault": kafka(**options), "config.routes.password-resets": route}
    )
    assert "password-resets" in loaded(rendered).routes
