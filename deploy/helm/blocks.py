"""What several parts of the chart's values are made of."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

# Whatever Kubernetes takes there; the rendered objects are checked against its own schemas.
Kubernetes = dict[str, Any]
Strings = dict[str, str]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=40)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[str, Field(pattern=r"^([1-9][0-9]?|100)%$")]


class Block(BaseModel):
    """What all blocks share: nothing unknown, and keys as charts write them (pullPolicy)."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", use_attribute_docstrings=True
    )


class PullSecret(Block):
    """As pods write it; a plain name does too."""

    name: str


PullSecrets = list[str | PullSecret]


class Image(Block):
    """Where an image is."""

    registry: str = ""
    """Before the repository; `global.imageRegistry` goes before it."""
    repository: str
    tag: str = ""
    """Of the chart's program, if none."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """Instead of a tag."""
    pull_secrets: PullSecrets = []
    """As imagePullSecrets: all pods have them."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"


class ProgramImage(Image):
    """That of the programs."""

    debug: bool = False
    """Of other charts; programs log the same with it."""


class SecretKey(Block):
    """One key of a Secret that exists."""

    secret: str
    key: str


class SecretFiles(Block):
    """A Secret that exists, its keys as files."""

    secret: str


class Secrets(Block):
    """Secrets by reference; values hold none."""

    env: dict[Variable, SecretKey] = {}
    """Environment variables, for ${VAR} in config."""
    files: dict[Label, SecretFiles] = {}
    """Directories under /secrets, for ${file:/secrets/NAME/KEY} in config."""
    reloader: bool = False
    """Stakater's Reloader replaces the pods when a Secret of theirs changes."""
    harmless: list[str] = []
    """Places of values that only look like secrets, as the refusal names them."""


class Enabled(BaseModel):
    """Over the chart's own; the rest of its words are those of Kubernetes."""

    model_config = ConfigDict(extra="allow")
    enabled: bool = True


class Probe(Enabled):
    """Over the defaults of a probe."""


class PodSettings(Block):
    """What serve and each of intakeWorkers may have of its own, instead of that of all programs."""

    extra_env: list[Kubernetes] | None = None
    extra_env_vars: list[Kubernetes] | None = None
    env_from: list[Kubernetes] | None = None
    extra_env_from: list[Kubernetes] | None = None
    extra_env_vars_cm: str | None = Field(None, alias="extraEnvVarsCM")
    extra_env_vars_secret: str | None = None
    extra_volumes: list[Kubernetes] | None = None
    extra_volume_mounts: list[Kubernetes] | None = None
    init_containers: list[Kubernetes] | None = None
    sidecars: list[Kubernetes] | None = None
    lifecycle: Kubernetes | None = None
    lifecycle_hooks: Kubernetes | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    custom_liveness_probe: Kubernetes | None = None
    custom_readiness_probe: Kubernetes | None = None
    custom_startup_probe: Kubernetes | None = None
    pod_security_context: Enabled | None = None
    container_security_context: Enabled | None = None
    update_strategy: Kubernetes | None = None
    replica_count: Count | None = None
    """The same as replicas, as other charts call it."""
    host_aliases: list[Kubernetes] | None = None
    dns_policy: str | None = None
    dns_config: Kubernetes | None = None
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    topology_spread_constraints: list[Kubernetes] | None = None
    pod_labels: Strings | None = None
    pod_annotations: Strings | None = None
    node_selector: Strings | None = None
    tolerations: list[Kubernetes] | None = None
    affinity: Kubernetes | None = None


class Labelled(Block):
    """Whether it is made, and how it is found."""

    enabled: bool = False
    namespace: str = ""
    """Instead of the release's."""
    labels: Strings = {}
