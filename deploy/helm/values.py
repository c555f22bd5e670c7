"""What values.yaml may hold, with defaults; `deploy.helm.schema` makes the chart's schema of it.

`config` is not here: its words are those of `duebridge.config.models`, and its schema is theirs.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from deploy.helm.blocks import (
    Block,
    Count,
    Enabled,
    Image,
    Kubernetes,
    Label,
    PodSettings,
    Probe,
    ProgramImage,
    PullSecrets,
    Secrets,
    Share,
    Strings,
    Variable,
)
from deploy.helm.habits import Metrics, Pdb, TheirService
from deploy.helm.monitoring import Monitoring
from deploy.helm.serving import HttpServer
from deploy.helm.spark import Spark

BEHAVIOR: Kubernetes = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15},
            {"type": "Pods", "value": 4, "periodSeconds": 15},
        ],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 300,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    },
}


class Keda(Block):
    """Of mode keda."""

    trigger: Literal["prometheus", "metrics-api"] = "prometheus"
    """metrics-api asks the workers' own JSON."""
    server_address: str = ""
    """Of Prometheus."""
    authentication: str = ""
    """The name of a TriggerAuthentication."""
    polling_interval: Count = 15


class Hpa(Block):
    """Of mode hpa."""

    metric: Annotated[str, Field(min_length=1)] = "duebridge_due_within_60s"
    """An external metric that your adapter serves."""
    match_labels: Strings = {}


class Scaling(Block):
    """How many workers there are."""

    mode: Literal["none", "keda", "hpa"] = "none"
    min: Count = 1
    max: Count = 10
    envelopes_per_worker: Count = 100_000
    """Envelopes due within the window, for each worker."""
    window: Literal["60s", "300s"] = "60s"
    """How far ahead to look."""
    behavior: Kubernetes = BEHAVIOR
    """Of a HorizontalPodAutoscaler: up at once, down one worker a minute."""
    keda: Keda = Keda()
    hpa: Hpa = Hpa()


class Global(BaseModel):
    """Of a chart that has this one in it; what else is there nothing here reads."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")
    image_registry: str = ""
    """Before the repository of every image."""
    image_pull_secrets: PullSecrets = []


class IntakeWorkers(PodSettings):
    """Workers that run one intake alone, scaled by its lag where `scaling.mode` says so."""

    intake: str = ""
    """Its name in config; by default this block's."""
    replicas: Count | None = None
    """By default as many as the workers."""
    resources: Kubernetes | None = None
    """By default those of the workers."""
    min: Count = 1
    max: Count = 10
    """Kafka: no more than partitions."""
    messages_per_worker: Count = 100_000
    """Messages that wait at the broker, for each of these workers."""


class Preflight(Block):
    """The check before an install, an upgrade or a rollback."""

    enabled: bool = True
    rollback: bool = True
    """Whether it can stop a rollback to this revision too."""
    timeout_seconds: Count = 120


class Budget(Block):
    """Of disruptions: always at least one pod may go, so no drain waits for good."""

    enabled: bool = True
    max_unavailable: Count | Share = 1


class Network(Block):
    """The NetworkPolicy; from allow_external on in the words of other charts."""

    enabled: bool = True
    from_: list[Kubernetes] = Field([], alias="from")
    """Who may ask for metrics; empty: anybody."""
    egress: list[Kubernetes] = []
    """Rules for store and brokers; empty: no restriction."""
    allow_external: bool = True
    """false: the release's pods, those of from, and those of the labels below."""
    add_external_client_access: bool = True
    """Whether the label NAME-client does."""
    ingress_pod_match_labels: Strings = {}
    ingress_ns_match_labels: Strings = Field({}, alias="ingressNSMatchLabels")
    ingress_ns_pod_match_labels: Strings = Field({}, alias="ingressNSPodMatchLabels")
    allow_external_egress: bool = True
    """false: DNS, the bundled store, egress and extra_egress alone."""
    extra_ingress: list[Kubernetes] = []
    extra_egress: list[Kubernetes] = []


class Valkey(Block):
    """A store for a trial: one copy, no password."""

    enabled: bool = False
    image: Image = Image(repository="valkey/valkey")
    storage: Annotated[str, Field(pattern=r"^([1-9][0-9]*(Mi|Gi|Ti))?$")] = ""
    """A volume's size; empty: what waits is lost with the pod."""
    resources: Kubernetes = {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"memory": "512Mi"},
    }


class ServiceAccount(Block):
    """Without a token."""

    create: bool = True
    name: str = ""
    annotations: Strings = {}
    automount_service_account_token: Literal[False] = False


class Values(Block):
    """All of values.yaml but `config`."""

    existing_config_map: str = ""
    """With the key duebridge.yaml, instead of config."""
    secrets: Secrets = Secrets()
    env: dict[Variable, str] = {}
    """Plain environment variables."""
    image: ProgramImage = ProgramImage(repository="duebridge")
    image_pull_secrets: PullSecrets = []
    replicas: Count = 2
    """Workers, unless scaling says how many."""
    replica_count: Count | None = None
    """The same, as other charts call it."""
    resources: Kubernetes = {
        "requests": {"cpu": "250m", "memory": "192Mi"},
        "limits": {"memory": "512Mi"},
    }
    termination_grace_period_seconds: Count | Literal[""] | None = None
    """At least worker.drain + worker.publish_deadline, and by default 10 more."""
    scaling: Scaling = Scaling()
    intake_workers: dict[Label, IntakeWorkers] = {}
    """By a name of yours: workers that run one intake alone."""
    serve: HttpServer = HttpServer()
    service: TheirService = TheirService()
    """`serve.service` and `serve.port`, as other charts call them."""
    preflight: Preflight = Preflight()
    pod_disruption_budget: Budget = Budget()
    pdb: Pdb = Pdb()
    """The same, as other charts call it."""
    topology_spread: list[str] = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    network_policy: Network = Network()
    monitoring: Monitoring = Monitoring()
    metrics: Metrics = Metrics()
    """The same, as other charts call it."""
    spark: Spark = Spark()
    valkey: Valkey = Valkey()
    service_account: ServiceAccount = ServiceAccount()
    automount_service_account_token: Literal[False] = False
    """No program asks anything of Kubernetes."""
    user: Count | None = 10001
    """User and group of all processes; null where the platform gives one."""
    pod_security_context: Enabled = Enabled()
    """Over the chart's own."""
    container_security_context: Enabled = Enabled()
    update_strategy: Kubernetes = {}
    revision_history_limit: Annotated[int, Field(ge=0)] = 5
    common_labels: Strings = {}
    common_annotations: Strings = {}
    pod_labels: Strings = {}
    pod_annotations: Strings = {}
    extra_env: list[Kubernetes] = []
    extra_env_vars: list[Kubernetes] = []
    env_from: list[Kubernetes] = []
    extra_env_from: list[Kubernetes] = []
    extra_env_vars_cm: str = Field("", alias="extraEnvVarsCM")
    extra_env_vars_secret: str = ""
    extra_volumes: list[Kubernetes] = []
    extra_volume_mounts: list[Kubernetes] = []
    init_containers: list[Kubernetes] = []
    sidecars: list[Kubernetes] = []
    """In the check they run as init containers with restartPolicy Always, and end with it."""
    lifecycle: Kubernetes = {}
    lifecycle_hooks: Kubernetes = {}
    startup_probe: Probe = Probe()
    """Over the chart's own."""
    liveness_probe: Probe = Probe()
    readiness_probe: Probe = Probe()
    custom_startup_probe: Kubernetes = {}
    """Instead of the chart's own."""
    custom_liveness_probe: Kubernetes = {}
    custom_readiness_probe: Kubernetes = {}
    host_aliases: list[Kubernetes] = []
    dns_policy: str = ""
    dns_config: Kubernetes = {}
    scheduler_name: str = ""
    runtime_class_name: str = ""
    priority_class_name: str = ""
    node_selector: Strings = {}
    tolerations: list[Kubernetes] = []
    affinity: Kubernetes = {}
    pod_anti_affinity_preset: Literal["", "soft", "hard"] = ""
    """Pods of a Deployment on nodes of their own."""
    topology_spread_constraints: list[Kubernetes] = []
    """Instead of `topologySpread`."""
    extra_deploy: list[Kubernetes | str] = []
    """Objects of your own."""
    name_override: str = ""
    fullname_override: str = ""
    global_: Global = Field(Global(), alias="global")
